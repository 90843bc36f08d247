// Computes a product with all threads of a pool.

#ifndef SHAPEROUTER_KERNELS_MULTIPLY_H_
#define SHAPEROUTER_KERNELS_MULTIPLY_H_

#include "kernels.h"
#include "parallel.h"

namespace shaperouter {

void Multiply(const Product& product, const Kernels& kernels, const Pool& pool);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_MULTIPLY_H_
