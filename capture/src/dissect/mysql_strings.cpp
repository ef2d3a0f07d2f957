// How the strings of the client's statements are read (sql_strings.hpp): NO_BACKSLASH_ESCAPES is a bit of the status in
// greetings and answers; the character set is told by the login, CHANGE_USER, and SET NAMES and its like.
#include <algorithm>
#include <string_view>

#include "mysql.hpp"
#include "sql_lex.hpp"

namespace tapscope {

using namespace mysql;

namespace {

constexpr std::size_t kLongestSetting = 1024;  // bytes of a SET that are looked at
constexpr std::string_view kNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

// Default and binary collations of big5, sjis, gbk, cp932 and gb18030; MariaDB's variants differ by 1024.
bool is_two_byte(unsigned collation) noexcept {
    constexpr unsigned ids[] = {1, 84, 13, 88, 28, 87, 95, 96, 248, 249, 250};
    return std::find(std::begin(ids), std::end(ids), collation % 1024) != std::end(ids);
}

bool holds(std::string_view text, std::string_view lowercase) noexcept {
    for (std::size_t at = 0; at + lowercase.size() <= text.size(); ++at)
        if (sql::equals_folded(text.data() + at, lowercase.size(), lowercase)) return true;
    return false;
}

bool starts_with(std::string_view text, std::string_view lowercase) noexcept {
    return text.size() >= lowercase.size() && sql::equals_folded(text.data(), lowercase.size(), lowercase);
}

std::string_view without_blanks(std::string_view text) noexcept {
    while (!text.empty() && sql::is(text.front(), sql::kSpace)) text.remove_prefix(1);
    return text;
}

// Behind blanks and comments in front of a statement; inside of the first comment that is executed.
std::string_view first_words(std::string_view text) noexcept {
    for (;;) {
        text = without_blanks(text);
        if (text.size() < 2 || text[0] != '/' || text[1] != '*') return text;
        if (const int opening = sql::kept_comment(text.data(), text.size()); opening != 0) {
            text.remove_prefix(static_cast<std::size_t>(opening));
            while (!text.empty() && sql::is(text.front(), sql::kDigit)) text.remove_prefix(1);
            return without_blanks(text);
        }
        const char* const end = text.data() + text.size();
        const char* const behind = sql::end_of_comment<SqlDialect::mysql>(text.data() + 2, end);
        text = {behind, static_cast<std::size_t>(end - behind)};
    }
}

}  // namespace

// Behind a loss, or joined in the middle, what is taken for a status may be something else: what is unusual is believed
// only where it is no news.
void MysqlDissector::note_status(std::uint16_t status) noexcept {
    if ((status & server_status::no_backslash_escapes) == 0)
        strings_.backslash = Backslash::escapes;
    else if (strings_.backslash != Backslash::plain)
        strings_.backslash = uncertain_ ? Backslash::unknown : Backslash::plain;
}

// A server may be told to take its own character set in place of the client's.
void MysqlDissector::note_collation(unsigned collation) noexcept {
    if (is_two_byte(collation))
        strings_.two_byte = TwoByte::yes;
    else
        strings_.two_byte = is_two_byte(server_collation_) ? TwoByte::unknown : TwoByte::no;
}

// User NUL, length u8 and password, database NUL, collation u16.
void MysqlDissector::note_change_of_user(Bytes payload) noexcept {
    Reader reader(payload.subspan(1));
    const auto text = [&reader] {
        while (reader.ok() && reader.u8() != 0) {}
    };
    text();
    if ((caps_ & client::secure_connection) != 0)
        reader.skip(reader.u8());
    else
        text();
    text();
    const std::uint16_t collation = reader.u16();
    if (reader.ok() && caps_ != 0)
        note_collation(collation);
    else
        doubt_strings(Direction::to_server);
}

// Bytes were lost. A change of the character set may be among those of the client; what the server says of backslashes
// changes by statements, and the next answer says it again.
void MysqlDissector::doubt_strings(Direction direction) noexcept {
    if (direction == Direction::to_server && strings_.two_byte == TwoByte::no)
        strings_.two_byte = TwoByte::unknown;
}

// Does the statement change how the next ones are read, and what follows in its own text? That counts before the server
// has agreed; a doubt ends only with a character set that every server has.
void MysqlDissector::note_settings(std::string_view text) noexcept {
    if (text.empty()) return;
    const char first = text.front();
    if (sql::lower(first) != 's' && first != '/' && !sql::is(first, sql::kSpace)) [[likely]]
        return;
    text = first_words(text);
    if (!starts_with(text, "set")) return;
    text = without_blanks(text.substr(3, kLongestSetting));
    if (holds(text, "sql_mode")) strings_.backslash = Backslash::unknown;
    const bool names = starts_with(text, "names");
    if (!names && !holds(text, "char")) return;
    constexpr std::string_view two_byte[] = {"big5", "sjis", "gbk", "cp932", "gb18030"};
    for (const std::string_view name : two_byte) {
        if (!holds(text, name)) continue;
        strings_.two_byte = TwoByte::yes;
        return;
    }
    if (!names) return;
    text = without_blanks(text.substr(5));
    if (!text.empty() && (text.front() == '\'' || text.front() == '"')) text.remove_prefix(1);
    const std::string_view name = text.substr(0, text.find_first_not_of(kNameBytes));
    constexpr std::string_view others[] = {"utf8", "utf8mb3", "utf8mb4", "latin1", "ascii", "binary"};
    for (const std::string_view other : others)
        if (name.size() == other.size() && starts_with(name, other)) strings_.two_byte = TwoByte::no;
}

}  // namespace tapscope
