// Header compression of HTTP/2, one direction of a connection: https://www.rfc-editor.org/rfc/rfc7541, by nghttp2's
// inflater, https://nghttp2.org/documentation/
//
// A tap may join late or lose a header block, and then does not know the dynamic table. Fields that do not refer to it
// can be read all the same, and so can what is put into it from then on, since entries are counted from the newest. So
// an unknown table is filled with placeholders that cannot occur as names, as many as any table of its size can hold:
// what is read is right, or is known to be missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "dissect/dissector.hpp"

struct nghttp2_hd_inflater;

namespace tapscope {

class HeaderTable {
public:
    // A table larger than this is not followed, whatever SETTINGS allow; what refers beyond it counts as missing.
    static constexpr std::size_t kMaxSize = 64 * 1024;

    // From the start of the connection: the table is empty. Otherwise it is unknown, as after `forget`.
    void start_empty();
    void forget() noexcept;

    // The next part of a header block; `last`: the block ends with it. Calls visit(name, value) for every field, and
    // visit({}, value) for one whose name is not known, with an empty value where that is not known either; the views
    // are valid during the call. False: not a header block, or one that refers beyond the table; it is forgotten then.
    template <class Visit>
    bool read(Bytes bytes, bool last, Visit visit) {
        open();
        while (true) {
            Field field;
            const Result result = next(bytes, last, field);
            if (result == Result::field) visit(field.name, field.value);
            if (result == Result::done) return true;
            if (result == Result::bad) return false;
        }
    }

private:
    struct Field {
        std::string_view name, value;
    };
    enum class Result : std::uint8_t { field, done, bad };
    struct Delete {
        void operator()(nghttp2_hd_inflater* inflater) const noexcept;
    };

    void open();
    void make(bool unknown);
    Result next(Bytes& bytes, bool last, Field& field);

    std::unique_ptr<nghttp2_hd_inflater, Delete> inflater_;
    std::uint32_t size_ = 4096;  // of an unknown table, bytes
};

}  // namespace tapscope
