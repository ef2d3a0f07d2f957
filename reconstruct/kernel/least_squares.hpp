// Linear least squares of few features, where some rows are wrong: rows that do not fit count little (weights of a
// Cauchy distribution, iterated), and each row is judged by what the others say (leave one out).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tapscope::match {

class LeastSquares {
public:
    explicit LeastSquares(std::size_t features) : k_(features) {}

    // A row: its features, to be filled in (0 as they come), valid until the next row.
    std::span<double> add(double y) {
        y_.push_back(y);
        x_.resize(x_.size() + k_, 0.0);
        return {x_.data() + x_.size() - k_, k_};
    }

    // Row `row` has another y from here on.
    void replace(std::size_t row, double y) noexcept { y_[row] = y; }

    // Fits slopes and constant in `rounds` rounds, at least one.
    void solve(int rounds);

    double slope(std::size_t feature) const noexcept { return slope_[feature]; }
    double constant() const noexcept { return constant_; }
    // What slopes and constant say of a row.
    double expected(std::size_t row) const noexcept;
    // By row: what is left of y when the row itself has no say in the fit.
    std::vector<float> left_out() const;

private:
    void solve_weighted();

    std::size_t k_;
    std::vector<double> x_, y_, weight_, leverage_;
    std::vector<double> slope_;
    double constant_ = 0;
};

}  // namespace tapscope::match
