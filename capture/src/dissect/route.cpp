#include "dissect/route.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "evidence.hpp"
#include "find_byte.hpp"

namespace tapscope {
namespace {

constexpr std::size_t kMaxNames = 24;        // query parameters in a class text; what follows is "&..."
constexpr std::size_t kMaxParameters = 128;  // tokens of one query string or form
constexpr std::size_t kMaxSegments = 64;
constexpr std::size_t kMaxBareWord = 32;
constexpr std::size_t kShortHash = 7, kSurelyHash = 16;  // hexadecimal digits

struct Target {
    std::string_view path;
    std::string_view query;
    bool has_query = false;
};

// A target without these needs no look for fragments, parameters of segments, or coded bytes.
bool is_plain(std::string_view target) noexcept { return !holds_any<'#', ';', '%', '+'>(target); }

// RFC 3986 section 3.1; of any length.
bool is_scheme(std::string_view text) noexcept {
    return !text.empty() && is_alpha(text.front()) && std::all_of(text.begin(), text.end(), [](char c) {
        return is_alpha(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
    });
}

// A target that begins neither with '/' nor with '*'. User information ("bob:secret@") is never part of the result: of
// an absolute URI the path and what follows, of an authority (and of what is none of these) what stands behind it.
std::string_view without_authority(std::string_view target) noexcept {
    const std::size_t scheme = target.find("://");
    if (scheme != std::string_view::npos && is_scheme(target.substr(0, scheme))) {
        const std::size_t end = target.find_first_of("/?#", scheme + 3);
        return end == std::string_view::npos || target[end] != '/' ? std::string_view("/")
                                                                   : target.substr(end);
    }
    const std::size_t at = target.substr(0, find_byte(target, '?')).rfind('@');
    return at == std::string_view::npos ? target : target.substr(at + 1);
}

// "http://host/a?b" counts as "/a?b"; a fragment never belongs on the wire and is cut.
std::string_view origin_form(std::string_view target, bool plain) noexcept {
    if (!target.empty() && target.front() != '/' && target.front() != '*') target = without_authority(target);
    return plain ? target : target.substr(0, find_byte(target, '#'));
}

Target split(std::string_view target, bool plain) noexcept {
    target = origin_form(target, plain);
    const std::size_t at = find_byte(target, '?');
    if (at == target.size()) return {target, {}, false};
    return {target.substr(0, at), target.substr(at + 1), true};
}

// 2026-11-21, 2026_11_21, and the same with a time behind a T.
bool is_date(std::string_view text) noexcept {
    if (text.size() < 10 || (text.size() > 10 && text[10] != 'T')) return false;
    if ((text[4] != '-' && text[4] != '_') || text[7] != text[4]) return false;
    return all_digits(text.substr(0, 4)) && all_digits(text.substr(5, 2)) && all_digits(text.substr(8, 2));
}

// A hash, also one that was cut short, such as that of a commit. Words of these letters have no digit.
bool is_hash(std::string_view text) noexcept {
    if (!std::all_of(text.begin(), text.end(), is_hex)) return false;
    return text.size() >= kSurelyHash || std::any_of(text.begin(), text.end(), is_digit);
}

// Placeholder of a path segment that varies, or nothing. "12.html" keeps its suffix.
std::string_view placeholder(std::string_view segment, std::string_view& suffix) noexcept {
    suffix = {};
    if (segment.empty()) return {};
    if (is_digit(segment.front())) {
        if (all_digits(segment)) return segment.size() > 19 ? "{id}" : "{n}";
        const std::size_t dot = segment.rfind('.');
        if (dot != std::string_view::npos && all_digits(segment.substr(0, dot))) {
            suffix = segment.substr(dot);
            return "{n}";
        }
        if (is_date(segment.substr(0, dot))) {
            if (dot != std::string_view::npos) suffix = segment.substr(dot);
            return "{date}";
        }
    }
    if (segment.size() < kShortHash) return {};
    if (is_hash(segment)) return "{hex}";
    if (segment.size() < 16) return {};
    if (is_uuid(segment)) return "{uuid}";
    return looks_like_id(segment) ? "{id}" : std::string_view{};
}

std::string_view without_path_parameter(std::string_view segment) noexcept {
    return segment.substr(0, find_byte(segment, ';'));
}

template <class Visit>
void each_segment(std::string_view path, Visit visit) {
    std::size_t index = 0;
    while (!path.empty() && index < kMaxSegments) {
        const bool slash = path.front() == '/';
        if (slash) path.remove_prefix(1);
        const std::size_t end = find_byte(path, '/');
        visit(index++, slash, path.substr(0, end));
        path.remove_prefix(end);
    }
}

// The value of a part without '=' has no data, unlike one that is empty.
template <class Visit>
void each_parameter(std::string_view query, char separator, Visit visit) {
    std::size_t count = 0;
    while (!query.empty() && count++ < kMaxParameters) {
        const std::size_t end = find_byte(query, separator);
        const std::string_view pair = query.substr(0, end);
        query.remove_prefix(std::min(end + 1, query.size()));
        if (pair.empty()) continue;
        const std::size_t equals = find_byte(pair, '=');
        if (equals == pair.size())
            visit(pair, std::string_view{});
        else
            visit(pair.substr(0, equals), pair.substr(equals + 1));
    }
}

std::string_view name_in_class(std::string_view name) noexcept {
    return name.size() > 64 || all_digits(name) || looks_like_id(name) ? std::string_view("{id}") : name;
}

// A part of a query without '=': one word ("?wsdl") says what is asked for, as the words of a path do. Anything else is
// a value without a name ("?alice@example.com").
std::string_view bare_in_class(std::string_view part) noexcept {
    const std::string_view shown = name_in_class(part);
    const bool word = part.size() <= kMaxBareWord && is_alpha(part.front()) &&
                      std::all_of(part.begin(), part.end(),
                                  [](char c) { return is_alpha(c) || c == '-' || c == '_' || c == '.'; });
    return word || shown.data() != part.data() ? shown : std::string_view("{value}");
}

void value_token(Recorder& recorder, MessageRef ref, std::string_view name, std::string_view value,
                 std::string& scratch) {
    if (value.empty()) return;
    const std::string_view decoded = url_decode(value, true, scratch);
    recorder.token(ref, slot_of_name(name), all_digits(decoded) ? TokenKind::number : TokenKind::text,
                   as_bytes(decoded));
}

}  // namespace

namespace {

// The class text of a request, written in one go: `text` has room for the longest one, see room_for.
class ClassText {
public:
    ClassText(std::string& scratch, std::string_view method, std::string_view target) : scratch_(scratch) {
        const std::size_t room = room_for(method, target);
        if (scratch.size() < room) scratch.resize(room);
        end_ = scratch.data();
        put(method);
        put(" ");
    }
    // Words of a few bytes: by two pieces that may overlap, as a call of memcpy would cost more.
    void put(std::string_view text) noexcept {
        const std::size_t n = text.size();
        const char* const p = text.data();
        if (n > 16)
            std::memcpy(end_, p, n);
        else if (n >= 8)
            put_both<8>(p, n);
        else if (n >= 4)
            put_both<4>(p, n);
        else
            for (std::size_t i = 0; i < n; ++i) end_[i] = p[i];
        end_ += n;
    }
    // Names are collected and put in order at the end.
    void name(std::string_view name) noexcept {
        name = name_in_class(name);
        const auto end = names_.begin() + static_cast<std::ptrdiff_t>(count_);
        const auto at = std::lower_bound(names_.begin(), end, name);
        if (at != end && *at == name) return;
        if (count_ == kMaxNames) {
            more_ = true;
            return;
        }
        std::copy_backward(at, end, end + 1);
        *at = name;
        ++count_;
    }
    std::string_view finish() noexcept {
        for (std::size_t i = 0; i < count_; ++i) {
            put(i == 0 ? " ?" : "&");
            put(names_[i]);
        }
        if (more_) put("&...");
        return {scratch_.data(), static_cast<std::size_t>(end_ - scratch_.data())};
    }

private:
    // Placeholders may be longer than what they stand for.
    static std::size_t room_for(std::string_view method, std::string_view target) noexcept {
        constexpr std::size_t longest = 7;  // {value}
        return method.size() + target.size() + (kMaxSegments + kMaxNames) * (longest + 2) + 16;
    }
    template <std::size_t Size>
    void put_both(const char* p, std::size_t n) noexcept {
        std::array<char, Size> first, last;
        std::memcpy(first.data(), p, Size);
        std::memcpy(last.data(), p + n - Size, Size);
        std::memcpy(end_, first.data(), Size);
        std::memcpy(end_ + n - Size, last.data(), Size);
    }

    std::string& scratch_;
    char* end_;
    union {  // not cleared: most requests have few names
        std::array<std::string_view, kMaxNames> names_;
    };
    std::size_t count_ = 0;
    bool more_ = false;
};

// Values that look like ids, as places in the target, to mask them in the second URI token.
class IdPlaces {
public:
    explicit IdPlaces(const char* origin) noexcept : origin_(origin) {}
    bool empty() const noexcept { return count_ == 0; }
    void note(std::string_view part) noexcept {
        if (count_ < kMost)
            places_[count_++] = {static_cast<std::size_t>(part.data() - origin_), part.size()};
    }
    // `whole`, which begins at the origin, with "{id}" in every place.
    void mask(std::string_view whole, std::string& out) {
        std::sort(places_, places_ + count_, [](const Place& a, const Place& b) { return a.from < b.from; });
        out.clear();
        std::size_t done = 0;
        for (std::size_t i = 0; i < count_; ++i) {
            if (places_[i].from < done) continue;
            out.append(whole.substr(done, places_[i].from - done));
            out.append("{id}");
            done = places_[i].from + places_[i].length;
        }
        out.append(whole.substr(done));
    }

private:
    static constexpr std::size_t kMost = 16;
    struct Place {
        std::size_t from, length;
    };
    const char* origin_;
    std::size_t count_ = 0;
    Place places_[kMost];
};

// One pass over a request target: its tokens, and its class text when `text` is given. The URI tokens come last, by
// uri_tokens, when the class of the message is set.
void read_path(Recorder& recorder, MessageRef ref, std::string_view path, bool plain_target, ClassText* text,
               IdPlaces& ids) {
    const bool parameters = !plain_target && holds(path, ';');
    std::string& scratch = recorder.scratch.value;
    each_segment(path, [&](std::size_t index, bool slash, std::string_view segment) {
        const std::string_view plain = parameters ? without_path_parameter(segment) : segment;
        std::string_view suffix;
        const std::string_view shape = placeholder(plain, suffix);
        if (text != nullptr) {
            if (slash) text->put("/");
            text->put(shape.empty() ? plain : shape);
            text->put(suffix);
        }
        if (!shape.empty()) {
            const std::string_view value = plain.substr(0, plain.size() - suffix.size());
            const bool number = shape == "{n}",
                       is_id = value.size() >= kSurelyHash && !number && shape != "{date}";
            recorder.token(ref, kPathSegmentSlot + static_cast<std::uint32_t>(index),
                           number ? TokenKind::number : TokenKind::text, as_bytes(value), is_id);
            if (is_id) ids.note(value);
        }
        if (plain.size() == segment.size()) return;
        each_parameter(segment.substr(plain.size() + 1), ';',
                       [&](std::string_view name, std::string_view value) {
                           value_token(recorder, ref, name, value, scratch);
                           if (looks_like_id(value)) ids.note(value);
                       });
    });
}

void read_query(Recorder& recorder, MessageRef ref, std::string_view query, bool plain_target,
                ClassText* text, IdPlaces& ids) {
    const bool coded = !plain_target && (holds(query, '%') || holds(query, '+'));
    std::string& scratch = recorder.scratch.value;
    each_parameter(query, '&', [&](std::string_view name, std::string_view value) {
        const bool bare = value.data() == nullptr;
        if (text != nullptr) text->name(bare ? bare_in_class(name) : name);
        if (bare) value = std::exchange(name, "");
        const bool id = value.size() >= 16 && looks_like_id(value);
        if (coded)
            value_token(recorder, ref, name, value, scratch);
        else if (!value.empty())
            recorder.token(ref, slot_of_name(name), all_digits(value) ? TokenKind::number : TokenKind::text,
                           as_bytes(value), id);
        if (id) ids.note(value);
        if (name.size() >= 16 && looks_like_id(name)) ids.note(name);
    });
}

void uri_tokens(Recorder& recorder, MessageRef ref, const Target& parts, IdPlaces& ids) {
    const std::string_view whole(parts.path.data(),
                                 parts.path.size() + (parts.has_query ? 1 + parts.query.size() : 0));
    recorder.token(ref, 0, TokenKind::uri, as_bytes(whole), !ids.empty());
    if (ids.empty()) return;
    std::string masked;
    ids.mask(whole, masked);
    recorder.token(ref, 0, TokenKind::uri, as_bytes(masked), false);
}

// Places where too many words were seen are "{*}" in the class; the words begin at `from`. Returns the class.
std::int32_t set_route(Recorder& recorder, MessageRef ref, Protocol protocol, std::string_view text,
                       std::size_t from) {
    std::int32_t id = recorder.classes.find(protocol, text);
    if (id < 0) [[unlikely]]
        id = recorder.classes.id(protocol, recorder.routes.fold(text, from, recorder.scratch.folded));
    recorder.set_class(ref, id);
    return id;
}

// Words that stand in the class, and may be values all the same.
void word_tokens(Recorder& recorder, MessageRef ref, std::int32_t cls, std::string_view path,
                 bool plain_target) {
    for (const auto& word : recorder.path_words.of(cls, recorder.classes, recorder.key())) {
        if (!word.folded) {
            recorder.known_token(ref, word.slot, TokenKind::word, word.hash);
            continue;
        }
        each_segment(path, [&](std::size_t index, bool, std::string_view segment) {
            if (index != word.segment) return;
            std::string_view value = plain_target ? segment : without_path_parameter(segment);
            value.remove_suffix(word_ending(value).size());
            const std::string_view decoded = url_decode(value, false, recorder.scratch.value);
            recorder.token(ref, word.slot, TokenKind::word, without_wildcards(as_bytes(decoded)), false);
        });
    }
}

bool is_identifier(std::string_view text) noexcept {
    return !text.empty() && !is_digit(text.front()) && std::all_of(text.begin(), text.end(), [](char c) {
        return is_alpha(c) || is_digit(c) || c == '_';
    });
}

}  // namespace

void request_route(Recorder& recorder, MessageRef ref, Protocol protocol, std::string_view method,
                   std::string_view target) {
    const bool plain = is_plain(target);
    const Target parts = split(target, plain);
    ClassText text(recorder.scratch.class_text, method, target);
    IdPlaces ids(parts.path.data());
    read_path(recorder, ref, parts.path, plain, &text, ids);
    read_query(recorder, ref, parts.query, plain, &text, ids);
    const auto cls = set_route(recorder, ref, protocol, text.finish(), method.size() + 1);
    word_tokens(recorder, ref, cls, parts.path, plain);
    uri_tokens(recorder, ref, parts, ids);
}

void call_route(Recorder& recorder, MessageRef ref, Protocol protocol, std::string_view method,
                std::string_view target) {
    const std::string_view path = target.substr(0, find_byte(target, '?'));
    const std::size_t slash = path.rfind('/');
    bool named = path.starts_with('/') && slash > 1 && is_identifier(path.substr(slash + 1));
    bool package = false;
    for (std::size_t at = 1; named && at < slash;) {
        const std::size_t end = std::min(path.find('.', at), slash);
        named = is_identifier(path.substr(at, end - at)) && end + 1 != slash;
        package |= end < slash;
        at = end + 1;
    }
    if (!named) return request_route(recorder, ref, protocol, method.empty() ? "POST" : method, target);
    // Two words without a package may be a path of any kind. With one, a large system has more services than a place of
    // a path may have words, but no service has so many methods.
    set_route(recorder, ref, protocol, path, package ? slash + 1 : 0);
    request_evidence(recorder, ref, target);
}

void request_evidence(Recorder& recorder, MessageRef ref, std::string_view target) {
    const bool plain = is_plain(target);
    const Target parts = split(target, plain);
    IdPlaces ids(parts.path.data());
    read_path(recorder, ref, parts.path, plain, nullptr, ids);
    read_query(recorder, ref, parts.query, plain, nullptr, ids);
    uri_tokens(recorder, ref, parts, ids);
}

void form_evidence(Recorder& recorder, MessageRef ref, std::string_view body, bool complete) {
    if (!complete) body = body.substr(0, body.rfind('&') == std::string_view::npos ? 0 : body.rfind('&'));
    while (!body.empty() && (body.back() == '\n' || body.back() == '\r')) body.remove_suffix(1);
    Scratch& scratch = recorder.scratch;
    each_parameter(body, '&', [&](std::string_view name, std::string_view value) {
        value_token(recorder, ref, url_decode(name, true, scratch.name), value, scratch.value);
    });
}

void cookie_evidence(Recorder& recorder, MessageRef ref, std::string_view value) {
    each_parameter(value, ';', [&](std::string_view name, std::string_view content) {
        while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
        if (content.size() >= 2 && content.front() == '"' && content.back() == '"')
            content = content.substr(1, content.size() - 2);
        if (content.empty()) return;
        recorder.token(ref, slot_of_name(name), all_digits(content) ? TokenKind::number : TokenKind::text,
                       as_bytes(content));
    });
}

void header_evidence(Recorder& recorder, MessageRef ref, std::string_view name, std::string_view value) {
    if (value.empty()) return;
    std::array<char, 64> lower;
    const std::size_t n = std::min(name.size(), lower.size());
    std::transform(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(n), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    if (std::string_view(lower.data(), n) == kTraceParent) value = trace_id(value);
    recorder.token(ref, slot_of_name({lower.data(), n}),
                   all_digits(value) ? TokenKind::number : TokenKind::text, as_bytes(value));
}

void endpoint_evidence(Recorder& recorder, MessageRef ref, std::string_view address, std::string_view port) {
    std::array<char, 80> text;
    if (address.size() + port.size() + 1 > text.size()) return;
    std::memcpy(text.data(), address.data(), address.size());
    text[address.size()] = ':';
    std::memcpy(text.data() + address.size() + 1, port.data(), port.size());
    recorder.token(ref, 0, TokenKind::endpoint, as_bytes({text.data(), address.size() + 1 + port.size()}),
                   false);
}

}  // namespace tapscope
