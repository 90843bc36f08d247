// What is computed for each row by itself; part of kernels_test.cc's program.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "choice.h"
#include "rows.h"
#include "testing.h"
#include "tokens.h"

namespace {

using shaperouter::Embedding;
using shaperouter::Kernels;
using shaperouter::kPerturbed;
using shaperouter::Norm;
using shaperouter::Perturbation;
using shaperouter::Pool;
using shaperouter::ScratchRoom;
using shaperouter::SoftmaxSums;
using shaperouter::TextSums;
using shaperouter::Truncation;
using testing::Floats;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Numbers that fill no part of a sum over a vocabulary, exactly one of the largest parts, or several.
const size_t kWidths[] = {1, 7, 15, 16, 45, 255, 256, 1023, 1024, 1025, 2053};

void FillWithNumbers(Floats& floats) {
  std::mt19937 random(static_cast<unsigned>(floats.size()));
  std::uniform_real_distribution<float> number(-1, 1);
  for (size_t at = 0; at < floats.size(); ++at) floats[at] = number(random);
}

void NormsOfEveryWidth(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 9;
  for (size_t width = 1; width <= 70; ++width) {
    Floats x(kRows * width), y(kRows * width), gain(width), bias(width), out(kRows * width);
    for (Floats* floats : {&x, &y, &gain, &bias}) FillWithNumbers(*floats);
    const Norm norm = {kRows,       width,       x.data(), y.data(),  gain.data(),
                       bias.data(), 0.01f,       true,     out.data()};
    Normalize(norm, kernels, pool);
    for (size_t row = 0; row < kRows; ++row) {
      double mean = 0, variance = 0;
      const auto sum = [&](size_t at) {
        return static_cast<double>(x[row * width + at]) + y[row * width + at];
      };
      for (size_t at = 0; at < width; ++at) mean += sum(at) / static_cast<double>(width);
      for (size_t at = 0; at < width; ++at) {
        variance += (sum(at) - mean) * (sum(at) - mean) / static_cast<double>(width);
      }
      for (size_t at = 0; at < width; ++at) {
        const double normed = (sum(at) - mean) / std::sqrt(variance + norm.epsilon);
        CHECK(std::abs(out[row * width + at] - (normed * gain[at] + bias[at])) <= 2e-5);
      }
    }
  }
}

// Embeddings from tables, one of which has the rows of x, and the other those of y, are norms of sums.
void EmbeddingsOfEveryWidth(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 9;
  for (size_t width = 1; width <= 70; ++width) {
    Floats x(kRows * width), y(kRows * width), gain(width), bias(width), out(kRows * width);
    for (Floats* floats : {&x, &y, &gain, &bias}) FillWithNumbers(*floats);
    Normalize(Norm{kRows, width, x.data(), y.data(), gain.data(), bias.data(), 0.01f, true,
                   out.data()},
              kernels, pool);
    std::vector<int32_t> ids;
    for (int32_t row = 0; row < static_cast<int32_t>(kRows); ++row) ids.push_back(row);
    Floats embedded(kRows * width);
    const Embedding embedding = {kRows,
                                 width,
                                 {x.data(), y.data(), nullptr},
                                 {kRows, kRows, 0},
                                 {ids.data(), ids.data(), nullptr},
                                 gain.data(),
                                 bias.data(),
                                 0.01f,
                                 embedded.data()};
    EmbedTokens(embedding, kernels, pool);
    CHECK(std::memcmp(embedded.data(), out.data(), kRows * width * sizeof(float)) == 0);
  }
}

void SumsOfEveryWidth(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 9;
  for (size_t width = 1; width <= 70; ++width) {
    Floats x(kRows * width), total(width);
    FillWithNumbers(x);
    const int32_t starts[] = {0, kRows};
    SumTokens(TextSums{1, width, x.data(), starts, total.data()}, kernels, pool);
    for (size_t at = 0; at < width; ++at) {
      float sum = 0;
      for (size_t row = 0; row < kRows; ++row) sum += x[row * width + at];
      CHECK(sum == total[at]);
    }
  }
}

// Rows that threads share have the bits of rows alone.
void ManyNorms(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 300, kWidth = 384;
  Floats x(kRows * kWidth), out(kRows * kWidth), alone(kWidth);
  FillWithNumbers(x);
  const auto norm = [&](size_t rows, const float* from, float* to) {
    Normalize(Norm{rows, kWidth, from, nullptr, nullptr, nullptr, 0.01f, true, to}, kernels, pool);
  };
  norm(kRows, x.data(), out.data());
  for (const size_t row : {size_t{0}, size_t{150}, kRows - 1}) {
    norm(1, x.data() + row * kWidth, alone.data());
    CHECK(std::memcmp(alone.data(), out.data() + row * kWidth, kWidth * sizeof(float)) == 0);
  }
}

// Norms without a mean, without a sum, and without gain and bias.
void NormsOfSquares(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 3;
  for (const size_t width : {1, 7, 16, 45}) {
    Floats x(kRows * width), gain(width), out(kRows * width);
    for (Floats* floats : {&x, &gain}) FillWithNumbers(*floats);
    for (const bool has_gain : {false, true}) {
      const float* const factors = has_gain ? gain.data() : nullptr;
      Normalize(Norm{kRows, width, x.data(), nullptr, factors, nullptr, 0.01f, false, out.data()},
                kernels, pool);
      for (size_t row = 0; row < kRows; ++row) {
        double squares = 0;
        for (size_t at = 0; at < width; ++at) {
          squares += static_cast<double>(x[row * width + at]) * x[row * width + at];
        }
        const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 0.01);
        for (size_t at = 0; at < width; ++at) {
          const double normed = x[row * width + at] * factor * (has_gain ? gain[at] : 1);
          CHECK(std::abs(out[row * width + at] - normed) <= 1e-5);
        }
      }
    }
  }
}

void SoftmaxOfEveryWidth(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 5;
  for (const size_t width : kWidths) {
    Floats x(kRows * width), out(kRows * SoftmaxSums::kCount);
    std::mt19937 random(static_cast<unsigned>(width));
    std::normal_distribution<float> number(30, 4);
    for (size_t at = 0; at < x.size(); ++at) x[at] = number(random);
    // What is ruled out counts for nothing.
    for (size_t row = 1; row < kRows; ++row) x[row * width + row % width] = -kInfinity;
    if (width == 1) x[0] = 7;
    SumSoftmax(SoftmaxSums{kRows, width, x.data(), out.data()}, kernels, pool);
    for (size_t row = 0; row < (width == 1 ? 1 : kRows); ++row) {
      const float* const from = x.data() + row * width;
      const double largest = *std::max_element(from, from + width);
      double sum = 0, weighted = 0;
      for (size_t at = 0; at < width; ++at) {
        const double off = from[at] - largest;
        sum += std::exp(off);
        if (std::isfinite(off)) weighted += std::exp(off) * off;
      }
      const float* const found = out.data() + row * SoftmaxSums::kCount;
      CHECK(found[0] == static_cast<float>(largest));
      CHECK(std::abs(found[1] - std::log(sum)) <= 1e-5);
      CHECK(std::abs(found[2] - (std::log(sum) - weighted / sum)) <= 1e-5);
    }
  }
}

// One row of scores, and the options of its truncation.
struct Truncated {
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float typical_p = 1;
  float epsilon_cutoff = 0;
  float eta_cutoff = 0;
  int32_t min_kept = 1;

  // The scores that are left; minus infinity elsewhere.
  std::vector<float> Of(Floats& scores, const Kernels& kernels, const Pool& pool) const {
    const size_t width = scores.size();
    Floats out(width), work(2 * ScratchRoom(width));
    const bool applies = true;
    Truncate(Truncation{1, width, scores.data(), &applies, &temperature, &top_k, &top_p, &min_p,
                        &typical_p, &epsilon_cutoff, &eta_cutoff, &min_kept, work.data(),
                        out.data()},
             kernels, pool);
    return {out.data(), out.data() + width};
  }
};

Floats Scores(size_t width) {
  Floats scores(width);
  std::mt19937 random(static_cast<unsigned>(width));
  std::normal_distribution<float> number(0, 3);
  for (size_t at = 0; at < width; ++at) scores[at] = number(random);
  return scores;
}

// The likeliest tokens, of which the last reaches `mass`, by the sums of a longer type.
size_t CountUntil(double mass, Floats& scores) {
  std::vector<double> shares;
  double total = 0;
  for (size_t at = 0; at < scores.size(); ++at) {
    shares.push_back(std::exp(static_cast<double>(scores[at])));
    total += shares.back();
  }
  std::sort(shares.rbegin(), shares.rend());
  double sum = 0;
  size_t count = 0;
  while (count < shares.size() && sum < mass * total) sum += shares[count++];
  return count;
}

// The likeliest tokens stay, as many as there must be.
void TheLikeliestStay(const Kernels& kernels, const Pool& pool) {
  for (const size_t width : kWidths) {
    Floats scores = Scores(width);
    const auto check = [&](const Truncated& options, size_t expected) {
      const std::vector<float> left = options.Of(scores, kernels, pool);
      size_t count = 0;
      float least = kInfinity, removed = -kInfinity;
      for (size_t at = 0; at < width; ++at) {
        if (left[at] == -kInfinity) {
          removed = std::max(removed, scores[at]);
        } else {
          CHECK(left[at] == scores[at] / options.temperature);
          least = std::min(least, scores[at]);
          ++count;
        }
      }
      CHECK(least > removed && count == expected);
    };
    Truncated options;
    check(options, width);
    options.top_k = 3;
    check(options, std::min<size_t>(3, width));
    options.min_kept = 5;
    check(options, std::min<size_t>(5, width));
    options = {};
    options.temperature = 2;
    options.top_k = 1000000;
    check(options, width);
    options = {};
    options.top_p = 0.7f;
    check(options, CountUntil(options.top_p, scores));
    options = {};
    options.min_p = 0.3f;
    const float largest = *std::max_element(scores.data(), scores.data() + width);
    check(options, static_cast<size_t>(std::count_if(
                       scores.data(), scores.data() + width,
                       [&](float score) { return score >= largest + std::log(0.3f); })));
  }
}

// What else truncates leaves some tokens, and those as they are.
void SomeTokensStay(const Kernels& kernels, const Pool& pool) {
  for (const size_t width : kWidths) {
    Floats scores = Scores(width);
    std::vector<Truncated> all(4);
    all[0].typical_p = 0.5f;
    all[1].epsilon_cutoff = 0.01f;
    all[2].eta_cutoff = 0.01f;
    all[3] = {1, 40, 0.95f, 0.01f, 0.9f, 1e-3f, 1e-3f, 2};
    for (const Truncated& options : all) {
      const std::vector<float> left = options.Of(scores, kernels, pool);
      size_t count = 0;
      for (size_t at = 0; at < width; ++at) {
        CHECK(left[at] == scores[at] || left[at] == -kInfinity);
        count += left[at] == scores[at];
      }
      CHECK(count >= std::min<size_t>(static_cast<size_t>(options.min_kept), width));
      CHECK(width < 16 || count < width);
    }
  }
}

void OtherRowsStayAsTheyAre(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 2, kWidth = 45;
  Floats scores(kRows * kWidth), out(kRows * kWidth), work(kRows * 2 * ScratchRoom(kWidth));
  FillWithNumbers(scores);
  const bool applies[kRows] = {false, true};
  const float halves[kRows] = {0.5f, 0.5f};
  const int32_t ones[kRows] = {1, 1};
  Truncate(Truncation{kRows, kWidth, scores.data(), applies, halves, ones, halves, halves, halves,
                      halves, halves, ones, work.data(), out.data()},
           kernels, pool);
  CHECK(std::memcmp(out.data(), scores.data(), kWidth * sizeof(float)) == 0);
  CHECK(std::count(out.data() + kWidth, out.data() + 2 * kWidth, -kInfinity) == kWidth - 1);
}

// The first word of Threefry-2x32 with 20 rounds (Salmon et al. 2011).
uint32_t Threefry(uint32_t key, uint32_t second_key, uint32_t x, uint32_t y) {
  const uint32_t schedule[] = {key, second_key, key ^ second_key ^ 0x1BD11BDA};
  const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x += schedule[0], y += schedule[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (const int bits : rotations[group % 2]) {
      x += y;
      y = (y << bits | y >> (32 - bits)) ^ x;
    }
    x += schedule[(group + 1) % 3];
    y += schedule[(group + 2) % 3] + group + 1;
  }
  return x;
}

// A token's noise depends neither on the width nor on the other rows.
void NoiseOfEveryWidth(const Kernels& kernels, const Pool& pool) {
  const auto noise = [&](size_t width, size_t rows, Floats& out) {
    Floats x(rows * width);
    for (size_t at = 0; at < x.size(); ++at) x[at] = 0;
    std::vector<uint32_t> seeds(2 * rows, 7);
    std::vector<int32_t> positions(rows, 11);
    const std::unique_ptr<bool[]> applies(new bool[rows]);
    for (size_t row = 0; row < rows; ++row) applies[row] = row % 2 == 0;
    Perturb(Perturbation{rows, width, x.data(), applies.get(), seeds.data(), positions.data(),
                         out.data()},
            kernels, pool);
  };
  constexpr size_t kWidest = 2 * kPerturbed + 5;
  Floats widest(kWidest);
  noise(kWidest, 1, widest);
  for (uint32_t at = 0; at < kWidest; ++at) {
    // 23 bits, centred.
    const double uniform = ((Threefry(7, 7, 11, at) >> 9) + 0.5) * 0x1p-23;
    CHECK(std::abs(widest[at] - -std::log(-std::log(uniform))) <= 1e-5);
  }
  for (const size_t width : {size_t{1}, size_t{7}, size_t{16}, size_t{45}, kPerturbed + 1}) {
    Floats found(3 * width);
    noise(width, 3, found);
    for (size_t at = 0; at < width; ++at) {
      CHECK(found[at] == widest[at] && found[width + at] == 0 && found[2 * width + at] == widest[at]);
    }
  }
}

}  // namespace

void testing::TestRows(const Kernels& kernels, const Pool& pool) {
  NormsOfEveryWidth(kernels, pool);
  NormsOfSquares(kernels, pool);
  ManyNorms(kernels, pool);
  EmbeddingsOfEveryWidth(kernels, pool);
  SumsOfEveryWidth(kernels, pool);
  SoftmaxOfEveryWidth(kernels, pool);
  TheLikeliestStay(kernels, pool);
  SomeTokensStay(kernels, pool);
  OtherRowsStayAsTheyAre(kernels, pool);
  NoiseOfEveryWidth(kernels, pool);
}
