// The fingerprinters of an engine, one for each dialect: what they remember of statements goes with its classes.
#pragma once

#include <string>

#include "sql_fingerprint.hpp"

namespace tapscope {

class SqlReader {
public:
    SqlFingerprinter& of(SqlDialect dialect) noexcept {
        return dialect == SqlDialect::mysql ? mysql_ : postgres_;
    }

private:
    SqlFingerprinter mysql_{SqlDialect::mysql}, postgres_{SqlDialect::postgres};
};

}  // namespace tapscope
