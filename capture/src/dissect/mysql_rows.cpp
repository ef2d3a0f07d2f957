// Result sets: the definitions of their columns, and the rows that give tokens.
#include <algorithm>

#include "mysql.hpp"
#include "mysql_values.hpp"
#include "sql_evidence.hpp"

namespace tapscope {

using namespace mysql;

bool MysqlDissector::wants_rows() const noexcept { return rows_seen_ < kMaxResultRows; }

// Ends with 0C, charset u16, length u32, type u8, flags u16, decimals u8, two bytes.
void MysqlDissector::definition(std::uint32_t length, Bytes payload) {
    constexpr std::size_t kTypeFromEnd = 6;
    constexpr std::uint8_t kUnsignedFlag = 0x20;
    if (definitions_left_ > 0xFFFFF) return;
    if (name_ != nullptr) name_column(payload);
    const std::uint32_t index = columns_ - definitions_left_;
    if (index < kTokenColumns && payload.size() == length && length >= 13 && payload[length - 13] == 0x0C) {
        column_type_[index] = payload[length - kTypeFromEnd];
        if ((payload[length - kTypeFromEnd + 1] & kUnsignedFlag) != 0) column_unsigned_ |= 1u << index;
    }
    if (--definitions_left_ > 0) return;
    answer_ = Answer::definitions_end;
    if (!answer_binary_) return;
    if (Statement* statement = answered_statement(); statement != nullptr) {
        statement->columns = columns_;
        std::copy_n(column_type_, kTokenColumns, statement->column_type);
        statement->column_unsigned = column_unsigned_;
    }
}

bool MysqlDissector::row_or_end(std::uint32_t length, Bytes payload, Recorder& recorder) {
    if (payload[0] == kErr) return error(payload, recorder);  // no row starts so
    const bool eof = payload[0] == kEof && length < kTerminator && payload.size() >= 5;
    if (answer_ == Answer::definitions_end) {
        answer_ = Answer::rows;
        if (name_ != nullptr) finish_naming(true, recorder);
        if (eof && length == 5 && deprecate_eof_ != Known::yes) {
            deprecate_eof_ = Known::no;
            note_status(load_le16(&payload[3]));
            if ((load_le16(&payload[3]) & server_status::cursor_exists) == 0) return false;
            recorder.set_status(answer_row_, 0);  // rows come by FETCH
            return finished(load_le16(&payload[3]), recorder);
        }
        if (deprecate_eof_ == Known::unknown) deprecate_eof_ = Known::yes;
    }
    // A text row starts with FE only when its first field has 16 MB and more, which a packet of full length shows.
    if (payload[0] == kEof && length < kMaxPayload) {
        if (length >= 7) return ok(payload, recorder);
        recorder.set_status(answer_row_, 0);
        if (eof) note_status(load_le16(&payload[3]));
        return finished(eof ? load_le16(&payload[3]) : std::uint16_t{0}, recorder);
    }
    if (wants_rows())
        row(payload, recorder);
    else
        recorder.count("mysql.rows_without_tokens");
    return false;
}

// Definitions and rows that are at hand as a whole, from `pos` on: most packets of a server are such, and change
// nothing but a few counts. Returns where the first other packet starts.
std::size_t MysqlDissector::result_set(Bytes bytes, std::size_t pos, Recorder& recorder) {
    std::uint64_t passed = 0;
    while (answer_ == Answer::rows || answer_ == Answer::definitions) {
        if (bytes.size() - pos < kHeader + 1) break;
        const std::size_t length = load_le32(&bytes[pos]) & kMaxPayload;
        if (length == 0 || length > kRowPrefix || length > bytes.size() - pos - kHeader) break;
        const Bytes payload = bytes.subspan(pos + kHeader, length);
        if (answer_ == Answer::definitions) {
            if (definitions_left_ > 0xFFFFF) break;
            definition(static_cast<std::uint32_t>(length), payload);
        } else {
            if (payload[0] == kEof || payload[0] == kErr) break;
            if (wants_rows())
                row(payload, recorder);
            else
                ++passed;
        }
        pos += kHeader + length;
    }
    if (passed > 0) recorder.count("mysql.rows_without_tokens", passed);
    return pos;
}

void MysqlDissector::row(Bytes payload, Recorder& recorder) {
    const std::uint32_t columns = std::min<std::uint32_t>(columns_, kTokenColumns);
    const auto take = [&](std::uint32_t column, Bytes value) {
        if (value.empty() || value.size() > kMaxResultText) return;
        recorder.token(answer_row_, column, TokenKind::result, value);
        ++tokens_;
    };
    const auto gives_token = [&](std::uint32_t column) {
        return column_type_[column] == kTypeUnknown || is_token_type(column_type_[column]);
    };
    const std::uint32_t row = rows_seen_++;
    if (!answer_binary_) {
        const std::uint8_t* p = payload.data();
        const std::uint8_t* const end = p + payload.size();
        for (std::uint32_t i = 0; i < columns && wants_result(row, i, tokens_) && p < end; ++i) {
            std::uint64_t size = *p++;
            if (size == kLocalInfile) continue;  // NULL
            if (size > kLocalInfile) [[unlikely]] {
                Reader reader({p - 1, static_cast<std::size_t>(end - p + 1)});
                size = reader.lenenc();
                if (!reader.ok()) return;
                p = reader.here();
            }
            if (size > static_cast<std::size_t>(end - p)) return;
            if (gives_token(i)) take(i, {p, static_cast<std::size_t>(size)});
            p += size;
        }
        return;
    }
    Reader reader(payload);
    if (reader.u8() != 0) return;
    const Bytes nulls = reader.take((std::size_t{columns_} + 2 + 7) / 8);
    char buffer[kMaxValueText];
    for (std::uint32_t i = 0; i < columns && reader.ok() && wants_result(row, i, tokens_); ++i) {
        if ((nulls[(i + 2) / 8] >> ((i + 2) % 8) & 1) != 0) continue;
        if (column_type_[i] == kTypeUnknown) break;
        if (!is_token_type(column_type_[i])) {
            skip_binary_value(reader, column_type_[i]);
            continue;
        }
        const bool is_unsigned = (column_unsigned_ >> i & 1) != 0;
        const auto type = static_cast<std::uint16_t>(column_type_[i] | (is_unsigned ? kUnsigned : 0));
        const Value value = read_binary_value(reader, type, buffer);
        if (value.kind() != Value::Kind::none) take(i, as_bytes(value.text()));
    }
}

}  // namespace tapscope
