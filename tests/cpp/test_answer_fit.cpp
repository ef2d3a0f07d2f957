// How answers are made from those to calls, where all of them change with what the server remembers.
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "answer_fit.hpp"
#include "expect.hpp"
#include "random.hpp"

using tapscope::match::AnswerFit;
using tapscope::match::Random;
using tapscope::test::expect;

namespace {

constexpr std::int32_t kStories = 0, kName = 1;
constexpr float kNameBytes = 57, kNameWritten = 39;

// A front page: the stories, of which the server remembers how to write them until they change, and the name of who is
// logged in. Of the calls for a name, `swapped` were given to the page before.
std::vector<AnswerFit::Example> front_pages(double swapped, float changes) {
    Random random;
    std::vector<AnswerFit::Example> out;
    float remembered = 4000;
    for (int i = 0; i < 480; ++i) {
        if (i % 60 == 59) remembered += changes * static_cast<float>(random() - 0.5);
        const bool named = random() < 0.3;
        AnswerFit::Example page{remembered + (named ? kNameWritten : 0.0f), {{kStories, 2400, 1}}};
        if (named) {
            const bool mine = out.empty() || random() >= swapped || out.back().called.size() > 1;
            (mine ? page : out.back()).called.push_back({kName, kNameBytes, 1});
        }
        out.push_back(std::move(page));
    }
    return out;
}

void a_name_is_told_from_pages_that_change() {
    for (const double swapped : {0.0, 0.15, 0.3}) {
        AnswerFit fit;
        fit.learn(front_pages(swapped, 600));
        expect(fit.tells(), "chains tell the lengths of pages that change");
        expect(std::abs(fit.part(kName, kNameBytes) - fit.part(kName, 0) - kNameWritten) < 3,
               "a name is as long as it is, though pages change");
        expect(fit.score(0) > fit.score(kNameWritten) + 1, "an answer that is off by a name says less");
    }
}

void and_from_pages_that_do_not() {
    AnswerFit fit;
    fit.learn(front_pages(0.1, 0));
    expect(fit.tells(), "chains tell the lengths of pages that do not");
    expect(std::abs(fit.part(kName, kNameBytes) - fit.part(kName, 0) - kNameWritten) < 3,
           "a name is as long as it is");
    expect(std::abs(fit.base() + fit.part(kStories, 2400) - 4000) < 3, "and the rest of the page is, too");
}

// Pages whose lengths have nothing to do with their calls are not told by these, whatever is taken from them.
void noise_tells_nothing() {
    Random random;
    auto pages = front_pages(0, 0);
    for (auto& page : pages) page.answer = 4000 + 500 * static_cast<float>(random());
    AnswerFit fit;
    fit.learn(pages);
    expect(!fit.tells(), "lengths that calls do not make are not told by them");
}

}  // namespace

int main() {
    a_name_is_told_from_pages_that_change();
    and_from_pages_that_do_not();
    noise_tells_nothing();
    return tapscope::test::failures > 0;
}
