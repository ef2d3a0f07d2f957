#include "least_squares.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kRidge = 1e-3;  // of a feature's variance: what only noise tells apart stays near 0

}  // namespace

double LeastSquares::expected(std::size_t row) const noexcept {
    double out = constant_;
    for (std::size_t f = 0; f < k_; ++f) out += slope_[f] * x_[row * k_ + f];
    return out;
}

void LeastSquares::solve(int rounds) {
    weight_.assign(y_.size(), 1.0);
    std::vector<double> off(y_.size());
    for (int round = 0;; ++round) {
        solve_weighted();
        if (round + 1 >= rounds) return;
        for (std::size_t i = 0; i < y_.size(); ++i) off[i] = std::abs(y_[i] - expected(i));
        auto sorted = off;
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        const double width = 1.5 * *middle + 1.0;
        for (std::size_t i = 0; i < y_.size(); ++i) weight_[i] = 1.0 / (1.0 + std::pow(off[i] / width, 2));
    }
}

void LeastSquares::solve_weighted() {
    const auto n = y_.size();
    double all = 0, mean_y = 0;
    std::vector<double> mean(k_, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
        all += weight_[i];
        mean_y += weight_[i] * y_[i];
        for (std::size_t f = 0; f < k_; ++f) mean[f] += weight_[i] * x_[i * k_ + f];
    }
    mean_y /= all;
    for (auto& each : mean) each /= all;
    // Normal equations of what differs from the mean, the lower half; then their Cholesky factor in its place.
    std::vector<double> a(k_ * k_, 0.0), b(k_, 0.0), z(k_);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t f = 0; f < k_; ++f) z[f] = x_[i * k_ + f] - mean[f];
        for (std::size_t f = 0; f < k_; ++f) {
            const double wz = weight_[i] * z[f];
            b[f] += wz * (y_[i] - mean_y);
            for (std::size_t g = 0; g <= f; ++g) a[f * k_ + g] += wz * z[g];
        }
    }
    for (std::size_t f = 0; f < k_; ++f) a[f * k_ + f] += kRidge * a[f * k_ + f] + 1e-9;
    for (std::size_t f = 0; f < k_; ++f) {
        for (std::size_t g = 0; g <= f; ++g) {
            double sum = a[f * k_ + g];
            for (std::size_t h = 0; h < g; ++h) sum -= a[f * k_ + h] * a[g * k_ + h];
            a[f * k_ + g] = f == g ? std::sqrt(std::max(sum, 1e-12)) : sum / a[g * k_ + g];
        }
    }
    // Solves L v = r in place.
    const auto forward = [&](std::vector<double>& r) {
        for (std::size_t f = 0; f < k_; ++f) {
            for (std::size_t g = 0; g < f; ++g) r[f] -= a[f * k_ + g] * r[g];
            r[f] /= a[f * k_ + f];
        }
    };
    forward(b);
    for (std::size_t f = k_; f-- > 0;) {
        for (std::size_t g = f + 1; g < k_; ++g) b[f] -= a[g * k_ + f] * b[g];
        b[f] /= a[f * k_ + f];
    }
    slope_ = b;
    constant_ = mean_y;
    for (std::size_t f = 0; f < k_; ++f) constant_ -= slope_[f] * mean[f];
    leverage_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t f = 0; f < k_; ++f) z[f] = x_[i * k_ + f] - mean[f];
        forward(z);
        double sum = 1.0 / all;
        for (const double each : z) sum += each * each;
        leverage_[i] = std::min(weight_[i] * sum, 0.95);
    }
}

std::vector<float> LeastSquares::left_out() const {
    std::vector<float> out(y_.size());
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>((y_[i] - expected(i)) / (1.0 - leverage_[i]));
    return out;
}

}  // namespace tapscope::match
