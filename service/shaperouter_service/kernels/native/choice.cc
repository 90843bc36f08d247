#include "choice.h"

#include "kernels.h"

namespace shaperouter {

void Truncate(const Truncation& truncation, const Kernels& kernels, const Pool& pool) {
  ForPieces(pool, truncation.rows, 1,
            [&](size_t first, size_t last) { kernels.truncate(truncation, first, last); });
}

void Perturb(const Perturbation& perturbation, const Kernels& kernels, const Pool& pool) {
  ForPieces(pool, perturbation.rows * PerturbedPieces(perturbation.width), 1,
            [&](size_t first, size_t last) { kernels.perturb(perturbation, first, last); });
}

}  // namespace shaperouter
