// The operands of what chooses tokens from scores: truncation and noise.

#ifndef SHAPEROUTER_KERNELS_CHOICE_H_
#define SHAPEROUTER_KERNELS_CHOICE_H_

#include <cstddef>
#include <cstdint>

#include "parallel.h"

namespace shaperouter {

struct Kernels;

// Truncation's scratch memory has room for twice the numbers of each row, rounded up to whole vectors
// of every instruction set.
constexpr size_t kScratchUnit = 16;
constexpr size_t ScratchRoom(size_t width) {
  return (width + kScratchUnit - 1) / kScratchUnit * kScratchUnit;
}

// out = scores / temperature, with minus infinity for the tokens that truncations rule out, in the
// order of the fields; see decoding/warpers.py. Rows that it does not apply to stay as they are.
struct Truncation {
  size_t rows;   // M
  size_t width;  // V

  const float* scores;   // [M, V]
  const bool* applies;   // [M]
  // [M] each.
  const float* temperature;
  const int32_t* top_k;         // Applies above 0.
  const float* top_p;           // Applies below 1.
  const float* min_p;           // Applies above 0.
  const float* typical_p;       // Applies below 1.
  const float* epsilon_cutoff;  // Applies above 0.
  const float* eta_cutoff;      // Applies above 0.
  const int32_t* min_kept;      // Tokens that each truncation leaves at least.

  float* work;  // [M, 2, V rounded up], scratch memory
  float* out;   // [M, V]
};

// out = scores + standard Gumbel noise, which depends on the seed, the position and the token: see
// decoding/randomness.py. Rows that it does not apply to stay as they are.
struct Perturbation {
  size_t rows;   // M
  size_t width;  // V

  const float* scores;       // [M, V]
  const bool* applies;       // [M]
  const uint32_t* seeds;     // [M, 2]
  const int32_t* positions;  // [M]

  float* out;  // [M, V]
};

void Truncate(const Truncation& truncation, const Kernels& kernels, const Pool& pool);
void Perturb(const Perturbation& perturbation, const Kernels& kernels, const Pool& pool);

// Perturbation is computed in pieces of a row.
constexpr size_t kPerturbed = 4 << 10;
constexpr size_t PerturbedPieces(size_t width) { return (width + kPerturbed - 1) / kPerturbed; }

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_CHOICE_H_
