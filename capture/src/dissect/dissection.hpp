// Gives every delivery to its conversation, in order.
#pragma once

#include "reassemble/deliveries.hpp"

namespace tapscope {

class Dissection final : public Outlet {
public:
    // At once.
    void take(Deliveries& deliveries) override;
    void wait() override {}
};

}  // namespace tapscope
