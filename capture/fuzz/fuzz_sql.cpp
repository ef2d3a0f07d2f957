// First byte: bit 0 the dialect, bit 1 whether the text is cut, bits 2 to 5 how strings are read (0: as usual); the rest
// is the statement.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "dissect/sql_fingerprint.hpp"

using namespace tapscope;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    SqlFingerprinter sql((data[0] & 1) != 0 ? SqlDialect::postgres : SqlDialect::mysql);
    const std::vector<char> copy(data + 1, data + size);
    const std::string_view text(copy.data(), copy.size());
    const bool cut = (data[0] & 2) != 0;
    if (const unsigned how = data[0] >> 2 & 15u; how == 0)
        sql.scan(text, cut);
    else
        sql.scan(text, {static_cast<Backslash>((how - 1) % 3), static_cast<TwoByte>((how - 1) / 3 % 3)}, cut);
    if (sql.fingerprint().size() > 2 * text.size() + 64) std::abort();
    if (sql.literals().size() > sql.literal_count() || sql.literal_count() > text.size()) std::abort();
    std::string scratch;
    for (const SqlLiteral& literal : sql.literals()) {
        const bool inside = literal.text.data() >= text.data() &&
                            literal.text.data() + literal.text.size() <= text.data() + text.size();
        if (!inside) std::abort();
        bool is_number = false;
        canonical(literal, scratch, is_number);
    }
    if (sql.statement().size() > text.size()) std::abort();
    return 0;
}
