// C-JDBC 2.0 between driver and controller: codes, layouts and tags. The protocol has no published description; this is
// what C-JDBC 2.0.2 was seen to send (docs/protocols/cjdbc.md).
//
//   login      int version (20) | STR database | STR user | STR password        answer: bool | bool, STR filter or STR reason
//   command    int code | arguments                                             answer: STR "OK" | value
//                                                                               or STR "T-ResultSet" | result set
//                                                                               or STR "null ResultSet"
//                                                                               or STR "T-Exception" | exception
//   STR        00 (null) or 01 | int n | ceil(n / 21333) x ( u16 size | size bytes of modified UTF-8 )
//              n in UTF-16 units; every chunk but the last holds 21333 of them. All integers big endian.
//
// No frame, no length, no magic: a message ends where the decoding of its fields ends. One command at a time.
#pragma once

#include <cstdint>
#include <string_view>

namespace tapscope::cjdbc {

inline constexpr std::uint32_t kVersion = 20;       // of the login
inline constexpr std::uint32_t kPing = 0xFFFFFFFF;  // in place of the version: is the controller alive?
inline constexpr std::uint32_t kChunkUnits = 21333;
inline constexpr std::uint32_t kMaxUnits = 256u << 20;  // of a STR
inline constexpr std::uint32_t kMaxColumns = 4096;      // as in MySQL

enum class Command : std::uint8_t {
    exec_read = 0,
    exec_write = 1,
    exec_write_with_keys = 2,
    exec_read_procedure = 3,
    exec_write_procedure = 4,
    begin = 20,
    reset = 31,
    fetch_next = 32,
    close_result_set = 33,
};

// Layout of fields, one letter each:
//   b bool     i int     l long     s STR     n STR that becomes evidence     q STR: the statement
//   ? bool; the next field is there only if it is true       ! bool; the message ends if it is false
//   ~ bool; the message ends if it is true                   * int n; the next field is there n times
//   t int: kind of write                                     @ the message ends unless that was INSERT
//   V behind `int 20`, at the start of a connection: something follows, so it is a login and not Begin
// and of answers:
//   O STR: the tag that says what follows      a bool: the login was accepted     T long: transaction id
//   C int: columns                             g back to the first field of a column unless it was the last
//   H STR "T-Column types"                     R int: rows; without any, the type tags are not there
//   Y STR type tag, one per column             W int: rows
//   r STR "T-Row"     u bool per column: null  v the values that are not null       w back to r unless it was the last row
//   M bool: more rows are to be fetched        & the message ends unless there are more
//   k STR: name of the cursor to fetch them by
//   K STR: kind of exception                   E bool: a cause comes first, in the same layout
//   F int: stack frames                        f back to the first field of a frame unless it was the last
//   c int: error code; a cause goes back to the exception around it
// and of Sequoia:
//   p STR: parameters of the statement
namespace layout {
#define TAPSCOPE_CJDBC_STATEMENT \
    "qbsibb?s"  // text, escapes, line separator, timeout, auto-commit, processed, skeleton
#define TAPSCOPE_CJDBC_PARAMETERS "ii?n"  // rows at most, fetch size, cursor name
inline constexpr const char* kLogin = "sss";
inline constexpr const char* kBeginOrLogin = "Vsss";
inline constexpr const char* kRead = TAPSCOPE_CJDBC_STATEMENT TAPSCOPE_CJDBC_PARAMETERS;
inline constexpr const char* kWrite = "t" TAPSCOPE_CJDBC_STATEMENT "@!" TAPSCOPE_CJDBC_PARAMETERS;
inline constexpr const char* kProcedure = TAPSCOPE_CJDBC_STATEMENT "!" TAPSCOPE_CJDBC_PARAMETERS;
#undef TAPSCOPE_CJDBC_STATEMENT
#undef TAPSCOPE_CJDBC_PARAMETERS

inline constexpr const char* kTag = "O";
inline constexpr const char* kLoginAnswer = "a";
inline constexpr const char* kLoginAccepted = "bs";
inline constexpr const char* kLoginRefused = "s";
// A column: table, name, display size, SQL type, names of the type and class, three bools, nullable, five bools,
// precision, scale.
inline constexpr const char* kColumn = "?ssiissbbbibbbbbiig";
inline constexpr const char* kColumns = "C";
inline constexpr const char* kTypes = "HRYWruvwM&k";
inline constexpr const char* kRows = "WruvwM";
inline constexpr const char* kOneValue = "Yv";
inline constexpr const char* kException = "KsE";  // kind, message, is there a cause?
inline constexpr const char* kCause = "sE";
inline constexpr const char* kFrames = "F";
inline constexpr const char* kFrame = "sssif";      // class, method, file, line
inline constexpr const char* kBehindFrames = "sc";  // SQL state, error code

inline constexpr const char* kSequoiaStatement = "qbib?p";  // text, escapes, timeout, auto-commit, parameters
}  // namespace layout

// What follows "OK".
enum class Reply : std::uint8_t { none, boolean, integer, transaction, text, result_set, rows, value };

struct CommandInfo {
    std::uint8_t code;
    const char* name;
    const char* arguments;  // layout
    Reply reply;
};

inline constexpr CommandInfo kCommands[] = {
    {0, "ExecReadRequest", layout::kRead, Reply::result_set},
    {1, "ExecWriteRequest", layout::kWrite, Reply::integer},
    {2, "ExecWriteRequestWithKeys", layout::kWrite, Reply::result_set},
    {3, "ExecReadStoredProcedure", layout::kProcedure, Reply::result_set},
    {4, "ExecWriteStoredProcedure", layout::kProcedure, Reply::integer},
    {20, "Begin", "", Reply::transaction},
    {21, "Commit", "", Reply::transaction},
    {22, "Rollback", "", Reply::transaction},
    {23, "SetNamedSavepoint", "n", Reply::boolean},
    {24, "SetUnnamedSavepoint", "", Reply::integer},
    {25, "ReleaseSavepoint", "n", Reply::boolean},
    {26, "RollbackToSavepoint", "n", Reply::boolean},
    {30, "Close", "", Reply::boolean},
    {31, "Reset", "", Reply::none},
    {32, "FetchNextResultSetRows", "ni", Reply::rows},
    {33, "CloseRemoteResultSet", "n", Reply::boolean},
    {34, "RestoreConnectionState", "~l", Reply::none},
    {35, "SetAutoCommit", "", Reply::boolean},
    {36, "GetCatalog", "", Reply::text},
    {37, "GetCatalogs", "", Reply::result_set},
    {38, "SetCatalog", "n", Reply::boolean},
    {39, "SetTransactionIsolation", "i", Reply::boolean},
    {50, "GetVirtualDatabaseName", "", Reply::text},
    {51, "GetControllerVersion", "", Reply::text},
    {52, "GetTables", "sss!*s", Reply::result_set},
    {53, "GetColumns", "ssss", Reply::result_set},
    {54, "GetPrimaryKeys", "sss", Reply::result_set},
    {55, "GetProcedures", "sss", Reply::result_set},
    {56, "GetProcedureColumns", "ssss", Reply::result_set},
    {58, "GetTableTypes", "", Reply::result_set},
    {59, "GetTablePrivileges", "sss", Reply::result_set},
    {60, "GetSchemas", "", Reply::result_set},
    {61, "GetDatabaseProductName", "", Reply::text},
    {62, "GetAttributes", "ssss", Reply::result_set},
    {63, "GetBestRowIdentifier", "sssib", Reply::result_set},
    {64, "GetColumnPrivileges", "ssss", Reply::result_set},
    {65, "GetCrossReference", "ssssss", Reply::result_set},
    {66, "GetExportedKeys", "sss", Reply::result_set},
    {67, "GetImportedKeys", "sss", Reply::result_set},
    {68, "GetIndexInfo", "sssbb", Reply::result_set},
    {69, "GetSuperTables", "sss", Reply::result_set},
    {70, "GetSuperTypes", "sss", Reply::result_set},
    {71, "GetTypeInfo", "", Reply::result_set},
    {72, "GetUDTs", "sss!*i", Reply::result_set},
    {73, "GetVersionColumns", "sss", Reply::result_set},
    {80, "GetStaticMetadata", "n", Reply::value},
};

inline const CommandInfo* find_command(std::uint32_t code) noexcept {
    for (const CommandInfo& command : kCommands)
        if (command.code == code) return &command;
    return nullptr;
}

// Kinds of write: DELETE, INSERT, UPDATE, CREATE, ALTER, DROP.
inline constexpr std::uint32_t kInsert = 2;
inline bool is_write_kind(std::uint32_t kind) noexcept {
    return (kind >= 1 && kind <= 3) || (kind >= 20 && kind <= 22);
}

// How the values of a column are written, by its type tag.
enum class Type : std::uint8_t {
    unknown,
    text,     // STR
    decimal,  // STR
    boolean,
    integer,
    long_,
    float_,
    double_,
    bytes,      // int n, n bytes
    date,       // long ms
    time,       // int ms
    timestamp,  // long ms, int ns
};

inline Type type_of(std::string_view tag) noexcept {
    constexpr struct {
        std::string_view tag;
        Type type;
    } types[] = {
        {"T-String", Type::text},     {"T-BigDecimal", Type::decimal}, {"T-Boolean", Type::boolean},
        {"T-Integer", Type::integer}, {"T-Long", Type::long_},         {"T-Float", Type::float_},
        {"T-Double", Type::double_},  {"T-Byte[]", Type::bytes},       {"T-Blob", Type::bytes},
        {"T-SqlDate", Type::date},    {"T-SqlTime", Type::time},       {"T-SqlTimestamp", Type::timestamp}};
    for (const auto& each : types)
        if (each.tag == tag) return each.type;
    return Type::unknown;
}

// Sequoia 2 to 4, the successor: markers before each command and after each answer, and a login whose version is
// major << 16 | minor. Known from descriptions only.
inline constexpr std::uint32_t kSequoiaPrompt = 0x1FA1501F, kSequoiaCommand = 0x00B015CA;

}  // namespace tapscope::cjdbc
