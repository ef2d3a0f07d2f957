// How connections to one server are lent, by the steps from one call to it to another.
#pragma once

#include <initializer_list>

namespace tapscope::match {

struct Lending {
    double stay = 0, chance_to_stay = 0;
    double again = 0;         // of those that stayed: expected if all had given it back
    bool gives_back = false;  // to a stack or a queue, behind each call

    void fade(double keep) noexcept {
        for (double* x : {&stay, &chance_to_stay, &again}) *x *= keep;
    }
    // Share of the steps that lead to another connection,
    double leave() const noexcept;
    // and that give theirs back, where such a share leads to another one. A stack or a queue lends the others what they
    // gave back.
    double give_back(double leave) const noexcept;
};

}  // namespace tapscope::match
