// Puts the tables that several engines filled from one capture into those of the first, in the order in which one
// engine alone would have filled them; the others' tables are empty afterwards.
//
// Column by column, so that at no time more than a few columns exist twice.
#pragma once

#include <memory>
#include <span>

#include "engine.hpp"

namespace tapscope {

void merge_tables(std::span<const std::unique_ptr<Engine>> engines);

}  // namespace tapscope
