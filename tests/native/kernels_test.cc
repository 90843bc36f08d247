// The kernels without XLA, for the sanitizers and for other processors: `make sanitize` and
// `make test-arm` build and run this.
//
// Every buffer has exactly the size that it must have, so that whatever is read or written beside
// it is found; rows and results begin at odd addresses.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "attend.h"
#include "multiply.h"
#include "parallel.h"
#include "testing.h"
#include "tokens.h"

namespace {

using testing::Floats;
using testing::Threads;

using shaperouter::Activation;
using shaperouter::Attention;
using shaperouter::BlockCount;
using shaperouter::kBlock;
using shaperouter::kBlockBytes;
using shaperouter::kGroup;
using shaperouter::kNibbleOffset;
using shaperouter::kPair;
using shaperouter::kPanelColumns;
using shaperouter::kQuad;
using shaperouter::kScaled;
using shaperouter::Kernels;
using shaperouter::PairCount;
using shaperouter::PanelCount;
using shaperouter::PanelSize;
using shaperouter::Pool;
using shaperouter::Product;
using shaperouter::QuadCount;
using shaperouter::RowSize;
using shaperouter::Task;
using shaperouter::TextAttention;
using shaperouter::WeightType;

// A pool that has no thread for anything.
constexpr Pool kNoThreads = {nullptr, 4, [](void*, Task*, void*) { return false; }};

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                       Activation::kGeluTanh, Activation::kSilu};

double Activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:
      return x * std::erfc(-x * std::sqrt(0.5)) / 2;
    case Activation::kGeluTanh:
      return x / (1 + std::exp(-std::sqrt(8 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

// The upper half of a float, which is a number of bfloat16.
uint16_t UpperHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

float Widened(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A product of random numbers, and what it should come to.
class Case {
 public:
  Case(size_t rows, size_t inputs, size_t columns, WeightType type, unsigned seed,
       Activation activation = Activation::kNone)
      : x_(rows * inputs),
        // With the inputs that fill up the last pair, quad or block.
        depth_(type == WeightType::kBFloat16 ? PairCount(inputs) * kPair
               : type == WeightType::kInt8   ? QuadCount(inputs) * kQuad
               : type == WeightType::kInt4   ? BlockCount(inputs) * kBlock
                                             : inputs),
        type_(type),
        weights_(PanelCount(columns) * depth_ * kPanelColumns),
        bytes_(new unsigned char[PanelCount(columns) * PanelSize(type, inputs)]()),
        scales_(columns),
        bias_(columns),
        arranged_(rows * RowSize(type, inputs)),
        out_(rows * columns) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> number(-1, 1);
    for (size_t at = 0; at < x_.size(); ++at) {
      const float value = number(random);
      // What rounding leaves as it is; of bytes, the first of each group makes its factor 1 / 64.
      x_[at] = type == WeightType::kFloat32    ? value
               : type == WeightType::kBFloat16 ? std::round(value * 128) / 128
               : at % inputs % kGroup == 0     ? 127.0f / 64
                                               : std::round(value * 127) / 64;
    }
    for (size_t at = 0; at < columns; ++at) {
      scales_[at] = type == WeightType::kInt8 ? 0.01f : 1;
      bias_[at] = number(random);
    }
    for (size_t panel = 0; panel < PanelCount(columns); ++panel) {
      for (size_t input = 0; input < depth_; ++input) {
        for (size_t lane = 0; lane < kPanelColumns; ++lane) {
          const size_t column = panel * kPanelColumns + lane;
          const bool there = input < inputs && column < columns;
          const float value = there ? number(random) : 0;
          weights_[At(input, column)] = Rounded(value, type, input, column);
        }
      }
    }
    product_ = {rows,           inputs,       columns,    x_.data(),        bytes_.get(), type,
                scales_.data(), bias_.data(), activation, arranged_.data(), out_.data()};
  }

  const Product& product() const { return product_; }
  Floats& x() { return x_; }
  Floats& out() { return out_; }

  void Check() {
    for (size_t row = 0; row < product_.rows; ++row) {
      for (size_t column = 0; column < product_.columns; ++column) {
        double sum = 0, size = 0;
        for (size_t input = 0; input < product_.inputs; ++input) {
          const double term = static_cast<double>(x_[row * product_.inputs + input]) *
                              weights_[At(input, column)] * scales_[column];
          sum += term;
          size += std::abs(term);
        }
        const double expected = Activated(sum + bias_[column], product_.activation);
        CHECK(std::abs(expected - out_[row * product_.columns + column]) <= 1e-5 * (size + 1));
      }
    }
  }

 private:
  size_t At(size_t input, size_t column) const {
    const size_t start = column / kPanelColumns * depth_ * kPanelColumns;
    const size_t lane = column % kPanelColumns;
    const size_t beside = type_ == WeightType::kBFloat16 ? kPair  // inputs
                          : type_ == WeightType::kInt8   ? kQuad
                                                         : 1;
    return start + (input / beside * kPanelColumns + lane) * beside + input % beside;
  }

  // Writes a weight in its type, and returns what that holds.
  float Rounded(float value, WeightType type, size_t input, size_t column) {
    const size_t at = At(input, column);
    switch (type) {
      case WeightType::kFloat32:
        std::memcpy(bytes_.get() + 4 * at, &value, 4);
        return value;
      case WeightType::kBFloat16: {
        const uint16_t half = UpperHalf(value);
        std::memcpy(bytes_.get() + 2 * at, &half, 2);
        return Widened(half);
      }
      case WeightType::kInt8: {
        const auto byte = static_cast<int8_t>(std::lround(value * 127));
        std::memcpy(bytes_.get() + at, &byte, 1);
        return byte;
      }
      case WeightType::kInt4: {
        const size_t lane = column % kPanelColumns, of_block = input % kBlock;
        unsigned char* const block =
            bytes_.get() + column / kPanelColumns * (depth_ / kBlock * kBlockBytes) +
            input / kBlock * kBlockBytes;
        // The scales of neighbours differ.
        const float scale = static_cast<float>(1 + (input / kScaled + column) % 7) / 512;
        const uint16_t half = UpperHalf(scale);
        std::memcpy(block + (of_block / kScaled * kPanelColumns + lane) * 2, &half, 2);
        const int32_t whole = std::clamp<int32_t>(static_cast<int32_t>(std::lround(value * 8)), -8, 7);
        const size_t quad = of_block / kQuad;
        block[(1 + quad / 2) * kPanelColumns * kQuad + lane * kQuad + input % kQuad] |=
            static_cast<unsigned char>((whole + kNibbleOffset) << quad % 2 * 4);
        return static_cast<float>(whole) * scale;
      }
    }
    return 0;
  }

  Floats x_;
  size_t depth_;
  WeightType type_;
  Floats weights_;
  std::unique_ptr<unsigned char[]> bytes_;
  Floats scales_, bias_, arranged_, out_;
  Product product_;
};

// Attention of random numbers, and what it should come to.
class AttentionCase {
 public:
  AttentionCase(size_t rows, size_t heads, size_t group, size_t queries, size_t length, size_t size,
                bool causal, unsigned seed)
      : query_(rows * heads * group * queries * size),
        keys_(kLayers * rows * heads * length * size),
        values_(keys_.size()),
        narrow_keys_(keys_.size()),
        narrow_values_(keys_.size()),
        bias_(rows * heads * group * queries * length),
        shares_(bias_.size()),
        out_(query_.size()),
        starts_(rows),
        ends_(rows),
        counts_(rows),
        visible_(new bool[rows * queries * length]) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> number(-1, 1);
    for (Floats* floats : {&query_, &keys_, &values_, &bias_}) {
      for (size_t at = 0; at < floats->size(); ++at) (*floats)[at] = number(random);
    }
    // Before the first position, in the middle, and beyond the last.
    for (int32_t& end : ends_) {
      end = static_cast<int32_t>(random() % (length + 4)) - 2;
    }
    for (size_t row = 0; row < rows; ++row) {
      starts_[row] = ends_[row] - static_cast<int32_t>(random() % (length + 2));
      counts_[row] = static_cast<int32_t>(random() % (queries + 3)) - 1;
    }
    for (size_t at = 0; at < rows * queries * length; ++at) visible_[at] = random() % 3 > 0;
    const bool narrow = seed % 6 > 2;
    if (narrow) {
      Narrow(keys_, narrow_keys_);
      Narrow(values_, narrow_values_);
    }
    const size_t of_layer = heads * length * size, layer = kLayer * of_layer;
    const void* keys = keys_.data() + layer;
    const void* values = values_.data() + layer;
    if (narrow) {
      keys = narrow_keys_.data() + layer;
      values = narrow_values_.data() + layer;
    }
    attention_ = {rows,
                  heads,
                  group,
                  queries,
                  length,
                  size,
                  query_.data(),
                  keys,
                  values,
                  narrow,
                  kLayers * of_layer,
                  seed % 3 ? starts_.data() : nullptr,
                  ends_.data(),
                  seed % 7 < 3 ? counts_.data() : nullptr,
                  causal,
                  seed % 2 ? visible_.get() : nullptr,
                  seed % 4 < 2 ? bias_.data() : nullptr,
                  0.25f,
                  seed % 5 ? 0 : 0.5f,
                  shares_.data(),
                  out_.data()};
  }

  const Attention& attention() const { return attention_; }

  void Check() {
    const auto& a = attention_;
    std::vector<double> weights(a.length), expected(a.size);
    for (size_t at = 0; at < a.rows * a.heads * a.group * a.queries; ++at) {
      const size_t head = at / a.queries / a.group, query = at % a.queries, row = head / a.heads;
      const auto seen = [&](size_t position) {
        const auto ahead = static_cast<int64_t>(position) +
                           static_cast<int64_t>(a.causal ? a.queries - 1 - query : 0);
        return (a.counts == nullptr || static_cast<int64_t>(query) < a.counts[row]) &&
               ahead < ends_[row] && (a.starts == nullptr || ahead >= starts_[row]) &&
               (a.visible == nullptr || a.visible[(row * a.queries + query) * a.length + position]);
      };
      double total = 0;
      expected.assign(a.size, 0);
      for (size_t position = 0; position < a.length; ++position) {
        const size_t cached = kLayer * a.heads * a.length * a.size + row * a.row_stride +
                              (head % a.heads * a.length + position) * a.size;
        double score = 0;
        for (size_t d = 0; d < a.size; ++d) {
          score += static_cast<double>(query_[at * a.size + d]) * keys_[cached + d];
        }
        score *= a.scale;
        if (a.cap != 0) score = a.cap * std::tanh(score / a.cap);
        if (a.bias != nullptr) score += a.bias[at * a.length + position];
        const double weight = seen(position) ? std::exp(score) : 0;
        total += weight;
        for (size_t d = 0; d < a.size; ++d) expected[d] += weight * values_[cached + d];
      }
      for (size_t d = 0; d < a.size; ++d) {
        const double value = total > 0 ? expected[d] / total : 0;
        CHECK(std::abs(value - out_[at * a.size + d]) <= 1e-5);
      }
    }
  }

 private:
  // Caches have several layers, one of which is attended to.
  static constexpr size_t kLayers = 3, kLayer = 1;

  // Makes floats bfloat16 numbers by cutting off their lower halves.
  static void Narrow(Floats& floats, std::vector<uint16_t>& narrow) {
    for (size_t at = 0; at < narrow.size(); ++at) {
      uint32_t bits;
      std::memcpy(&bits, &floats[at], sizeof bits);
      narrow[at] = static_cast<uint16_t>(bits >> 16);
      bits &= 0xffff0000;
      std::memcpy(&floats[at], &bits, sizeof bits);
    }
  }

  Floats query_, keys_, values_;
  std::vector<uint16_t> narrow_keys_, narrow_values_;
  Floats bias_, shares_, out_;
  std::vector<int32_t> starts_, ends_, counts_;
  std::unique_ptr<bool[]> visible_;
  Attention attention_;
};

constexpr WeightType kTypes[] = {WeightType::kFloat32, WeightType::kBFloat16, WeightType::kInt8,
                                 WeightType::kInt4};

void EveryNumberOfRows(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kShapes[][2] = {{1, 1},    {3, 17},   {64, 48},  {97, 131},
                                   {300, 33}, {128, 16}, {192, 100}};
  for (const WeightType type : kTypes) {
    for (size_t rows = 1; rows <= 70; ++rows) {
      for (const auto [inputs, columns] : kShapes) {
        Case one(rows, inputs, columns, type, static_cast<unsigned>(rows),
                 kActivations[rows % std::size(kActivations)]);
        Multiply(one.product(), kernels, pool);
        one.Check();
      }
    }
  }
}

void ManyRows(const Kernels& kernels, const Pool& pool) {
  for (const size_t rows : {128, 511}) {
    for (const WeightType type : kTypes) {
      for (const size_t inputs : {1030, 1088}) {
        Case one(rows, inputs, 70, type, 1);
        Multiply(one.product(), kernels, pool);
        one.Check();
      }
    }
  }
}

void EveryNumberOfQueries(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kShapes[][2] = {{1, 1}, {5, 3}, {33, 16}, {64, 64}, {100, 83}};
  for (size_t queries = 1; queries <= 19; ++queries) {
    for (const auto [length, size] : kShapes) {
      for (const bool causal : {false, true}) {
        for (const size_t group : {1, 3}) {
          const auto seed = static_cast<unsigned>(queries + group);
          AttentionCase one(3, 2, group, queries, length, size, causal, seed);
          Attend(one.attention(), kernels, pool);
          one.Check();
        }
      }
    }
  }
}

// A row is the same alone and among others, to the last bit.
void RowsDoNotDependOnOthers(const Kernels& kernels, const Pool& pool) {
  for (const WeightType type : kTypes) {
    // More inputs than one piece has.
    for (const size_t inputs : {300, 1216}) {
      Case all(61, inputs, 83, type, 7);
      std::mt19937 random(3);
      std::normal_distribution<float> number;
      for (size_t at = 0; at < all.x().size(); ++at) all.x()[at] = number(random);
      Multiply(all.product(), kernels, pool);
      // With tiles, one to three rows, up to 32 and more take different paths.
      for (const size_t rows : {1, 2, 3, 4, 5, 12, 16, 17, 32, 33}) {
        const size_t row = 61 - rows;
        Floats arranged(rows * RowSize(type, inputs)), out(rows * 83);
        Product some = all.product();
        some.rows = rows;
        some.x += row * inputs;
        some.arranged = arranged.data();
        some.out = out.data();
        Multiply(some, kernels, pool);
        CHECK(std::memcmp(out.data(), &all.out()[row * 83], rows * 83 * sizeof(float)) == 0);
      }
    }
  }
}

// A query is the same alone and among others, to the last bit, whatever there is beyond its end.
void QueriesDoNotDependOnOthers(const Kernels& kernels, const Pool& pool, size_t queries,
                                size_t size) {
  constexpr size_t kPlaces = 85, kStart = 59, kEnd = 79;
  Floats query(queries * size), caches(2 * kPlaces * size), shares(queries * kEnd);
  Floats out(query.size()), own(size);
  std::mt19937 random(static_cast<unsigned>(queries));
  std::uniform_real_distribution<float> number(-1, 1);
  for (Floats* floats : {&query, &caches}) {
    for (size_t at = 0; at < floats->size(); ++at) (*floats)[at] = number(random);
  }
  for (size_t at = kEnd * size; at < kPlaces * size; ++at) {
    caches[at] = caches[kPlaces * size + at] = std::numeric_limits<float>::quiet_NaN();
  }
  const int32_t start = kStart, end = kEnd;
  const Attention all = {1,
                         1,
                         1,
                         queries,
                         kPlaces,
                         size,
                         query.data(),
                         caches.data(),
                         caches.data() + kPlaces * size,
                         false,
                         kPlaces * size,
                         &start,
                         &end,
                         nullptr,
                         true,
                         nullptr,
                         nullptr,
                         0.25f,
                         0,
                         shares.data(),
                         out.data()};
  Attend(all, kernels, pool);
  for (size_t at = 0; at < queries; ++at) {
    const int32_t own_start = static_cast<int32_t>(all.Start(0, at));
    const int32_t own_end = static_cast<int32_t>(all.End(0, at));
    Attention alone = all;
    alone.queries = 1;
    alone.query += at * size;
    alone.starts = &own_start;
    alone.ends = &own_end;
    alone.out = own.data();
    Attend(alone, kernels, pool);
    CHECK(std::memcmp(own.data(), &out[at * size], size * sizeof(float)) == 0);
  }
}

void QueriesDoNotDependOnOthers(const Kernels& kernels, const Pool& pool) {
  // Heads of sizes that are constants in the kernels, others, and one whose keys are not transposed.
  for (const size_t size : {37, 64, 128, 256, 257}) {
    for (const size_t queries : {1, 2, 3, 4, 5, 6, 7, 13, 58}) {
      QueriesDoNotDependOnOthers(kernels, pool, queries, size);
    }
  }
}

// As exactly as floats have it, however small; what is no number, and what is too large, stays so.
void ActivationsAreExact(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kRows = 401;
  for (const Activation activation : kActivations) {
    // What is multiplied by one is the sum.
    Floats x(kRows), arranged(kRows), out(kRows), weights(kPanelColumns);
    for (size_t lane = 0; lane < kPanelColumns; ++lane) weights[lane] = lane == 0;
    for (size_t row = 0; row < kRows; ++row) x[row] = (static_cast<float>(row) - 200) / 16;
    x[7] = std::numeric_limits<float>::quiet_NaN();
    x[8] = std::numeric_limits<float>::infinity();
    Multiply({kRows, 1, 1, x.data(), weights.data(), WeightType::kFloat32, nullptr, nullptr,
              activation, arranged.data(), out.data()},
             kernels, pool);
    CHECK(std::isnan(out[7]) && out[8] == x[8]);
    for (size_t row = 9; row < kRows; ++row) {
      const double expected = Activated(x[row], activation);
      CHECK(std::abs(out[row] - expected) <= 3e-5 * std::abs(expected) + 1e-30);
    }
  }
}

void WhatIsNoNumberStaysInItsRow(const Kernels& kernels, const Pool& pool) {
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    for (const WeightType type : kTypes) {
      Case one(9, 40, 35, type, 3);
      one.x()[4 * 40 + 11] = odd;
      Multiply(one.product(), kernels, pool);
      for (size_t row = 0; row < 9; ++row) {
        for (size_t column = 0; column < 35; ++column) {
          CHECK(std::isfinite(one.out()[row * 35 + column]) == (row != 4));
        }
      }
    }
  }
}

// Numbers become the nearest of 255 steps; of a group, whatever the others of its row are.
void RowsAreRoundedByGroups(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kInputs = 3 * kGroup - 5, kRows = 17;
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
    Case one(kRows, kInputs, 21, type, 5);
    std::vector<double> exact(kRows * 21);
    Multiply(one.product(), kernels, pool);
    for (size_t at = 0; at < exact.size(); ++at) exact[at] = one.out()[at];
    // Less than half a step of 1 / 64.
    for (size_t at = 0; at < kRows * kInputs; ++at) {
      if (at % kInputs % kGroup != 0) one.x()[at] -= std::copysign(0.007f, one.x()[at]);
    }
    Multiply(one.product(), kernels, pool);
    for (size_t at = 0; at < exact.size(); ++at) CHECK(one.out()[at] == exact[at]);
    // Groups of zeros, and of numbers too small for a factor, come to nothing.
    for (const float small : {0.0f, 1e-38f}) {
      for (size_t at = 0; at < kRows * kInputs; ++at) one.x()[at] = small;
      Multiply(one.product(), kernels, pool);
      for (size_t at = 0; at < exact.size(); ++at) {
        CHECK(one.out()[at] == one.product().bias[at % 21]);
      }
    }
  }
}

// Numbers become the nearest that bfloat16 has; of two, the one whose last bit is 0.
void RowsAreRoundedToBFloat16(const Kernels& kernels, const Pool& pool) {
  constexpr float kStep = 1.0f / 128, kLittle = 1.0f / (1 << 20);
  constexpr float kNumbers[][2] = {{1 + kStep / 2, 1},
                                   {1 + kStep / 2 + kLittle, 1 + kStep},
                                   {1 + 3 * kStep / 2, 1 + 2 * kStep},
                                   {1 + 3 * kStep / 2 - kLittle, 1 + kStep},
                                   {2 - kLittle, 2}};
  for (size_t rows = 1; rows <= 20; ++rows) {
    for (const float sign : {1.0f, -1.0f}) {
      Case one(rows, 37, 21, WeightType::kBFloat16, static_cast<unsigned>(rows));
      const auto fill = [&](size_t which) {
        for (size_t at = 0; at < rows * 37; ++at) {
          one.x()[at] = sign * kNumbers[at % std::size(kNumbers)][which];
        }
        Multiply(one.product(), kernels, pool);
      };
      fill(1);
      const std::vector<float> expected(one.out().data(), one.out().data() + rows * 21);
      fill(0);
      CHECK(std::memcmp(expected.data(), one.out().data(), rows * 21 * sizeof(float)) == 0);
    }
  }
}

// With weights of bfloat16 and of four bits, every instruction set gives the same bits, whatever the
// rows are. The inputs of bfloat16 are no multiple of 32, so that tiles do not multiply them.
void InstructionSetsAgree(const Kernels& kernels, const Pool& pool) {
  for (const WeightType type : {WeightType::kBFloat16, WeightType::kInt4}) {
    for (const size_t rows : {1, 7, 40}) {
      Case one(rows, 1101, 83, type, static_cast<unsigned>(rows));
      std::mt19937 random(1);
      std::normal_distribution<float> number;
      for (size_t at = 0; at < rows * 1101; ++at) one.x()[at] = number(random);
      Multiply(one.product(), shaperouter::kPortableKernels, pool);
      const std::vector<float> expected(one.out().data(), one.out().data() + rows * 83);
      Multiply(one.product(), kernels, pool);
      CHECK(std::memcmp(expected.data(), one.out().data(), rows * 83 * sizeof(float)) == 0);
    }
  }
}

// Every element of a range is in one piece.
void EveryPieceOnce(const Pool& pool) {
  for (const size_t count : {0, 1, 2, 7, 16, 40, 1000}) {
    for (const size_t piece : {1, 3, 8, 2000}) {
      std::vector<std::atomic<int>> times(count);
      shaperouter::ForPieces(pool, count, piece, [&](size_t begin, size_t end) {
        CHECK(begin < end && end <= count);
        for (size_t at = begin; at < end; ++at) ++times[at];
      });
      for (const auto& each : times) CHECK(each == 1);
    }
  }
}

void SeveralAtATime(const Kernels& kernels, const Pool& pool) {
  std::vector<std::thread> callers;
  for (unsigned caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&kernels, &pool, caller] {
      for (unsigned round = 0; round < 40; ++round) {
        Case one(1 + (caller + round) % 14, 257, 400, kTypes[round % std::size(kTypes)], caller * 100 + round);
        Multiply(one.product(), kernels, pool);
        one.Check();
        AttentionCase other(1 + round % 3, 4, 1, 1 + caller, 300, 64, round % 2 == 0, round);
        Attend(other.attention(), kernels, pool);
        other.Check();
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

// Texts of random numbers, among them one without tokens, attend to themselves.
void TextsOfEveryLength(const Kernels& kernels, const Pool& pool) {
  constexpr size_t kHeads = 2, kReach = 7;
  for (const size_t size : {1, 3, 16, 37, 64, 300}) {
    for (const size_t longest : {1, 12, 25, 40}) {
      const int32_t lengths[] = {static_cast<int32_t>(longest), 0, 1,
                                 static_cast<int32_t>(longest / 2 + 1)};
      std::vector<int32_t> starts = {0}, positions;
      for (const int32_t length : lengths) {
        starts.push_back(starts.back() + length);
        for (int32_t at = 0; at < length; ++at) positions.push_back(at);
      }
      const size_t tokens = static_cast<size_t>(starts.back()), width = kHeads * size;
      Floats projected(tokens * 3 * width), biases(kHeads * (2 * kReach + 1));
      Floats sums(2 * kHeads * tokens), out(tokens * width);
      std::mt19937 random(static_cast<unsigned>(longest));
      std::uniform_real_distribution<float> number(-1, 1);
      for (Floats* floats : {&projected, &biases}) {
        for (size_t at = 0; at < floats->size(); ++at) (*floats)[at] = number(random);
      }
      const bool biased = longest % 5 != 0;
      const TextAttention attention = {std::size(lengths),
                                       tokens,
                                       kHeads,
                                       size,
                                       projected.data(),
                                       starts.data(),
                                       biased ? positions.data() : nullptr,
                                       biased ? biases.data() : nullptr,
                                       kReach,
                                       0.25f,
                                       sums.data(),
                                       out.data()};
      AttendTexts(attention, kernels, pool);
      for (size_t text = 0; text < std::size(lengths); ++text) {
        for (size_t head = 0; head < kHeads; ++head) {
          for (int32_t query = starts[text]; query < starts[text + 1]; ++query) {
            std::vector<double> expected(size);
            double total = 0;
            for (int32_t key = starts[text]; key < starts[text + 1]; ++key) {
              const float* q = &projected[static_cast<size_t>(query) * 3 * width + head * size];
              const float* k =
                  &projected[static_cast<size_t>(key) * 3 * width + width + head * size];
              double score = 0;
              for (size_t at = 0; at < size; ++at) score += static_cast<double>(q[at]) * k[at];
              score *= attention.scale;
              if (biased) {
                const int64_t reach = kReach;
                const int64_t ahead = std::clamp<int64_t>(key - query, -reach, reach);
                score += biases[head * (2 * kReach + 1) + static_cast<size_t>(ahead + reach)];
              }
              total += std::exp(score);
              for (size_t at = 0; at < size; ++at) expected[at] += std::exp(score) * k[width + at];
            }
            for (size_t at = 0; at < size; ++at) {
              const float found = out[static_cast<size_t>(query) * width + head * size + at];
              CHECK(std::abs(found - expected[at] / total) <= 1e-5);
            }
          }
        }
      }
    }
  }
}

}  // namespace

int main() {
  // The last has more threads than a range has spans.
  Threads two(2), one(1), many(20);
  for (const Pool& pool : {two.pool(), one.pool(), many.pool(), kNoThreads}) EveryPieceOnce(pool);
  for (auto runnable = shaperouter::RunnableKernels(); *runnable != nullptr; ++runnable) {
    const Kernels& kernels = **runnable;
    std::printf("%s\n", kernels.name);
    EveryNumberOfRows(kernels, two.pool());
    ManyRows(kernels, two.pool());
    ManyRows(kernels, kNoThreads);
    EveryNumberOfQueries(kernels, two.pool());
    TextsOfEveryLength(kernels, two.pool());
    testing::TestRows(kernels, two.pool());
    RowsDoNotDependOnOthers(kernels, two.pool());
    QueriesDoNotDependOnOthers(kernels, two.pool());
    ActivationsAreExact(kernels, two.pool());
    WhatIsNoNumberStaysInItsRow(kernels, two.pool());
    RowsAreRoundedByGroups(kernels, two.pool());
    RowsAreRoundedToBFloat16(kernels, two.pool());
    InstructionSetsAgree(kernels, two.pool());
    SeveralAtATime(kernels, two.pool());
    SeveralAtATime(kernels, one.pool());
  }
  return 0;
}
