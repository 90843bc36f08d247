// A product on the processor that there is, by all threads of a pool.

#ifndef SHAPEROUTER_KERNELS_MULTIPLY_H_
#define SHAPEROUTER_KERNELS_MULTIPLY_H_

#include "parallel.h"
#include "product.h"

namespace shaperouter {

// The kernels that run fastest on this processor, or those of the name that the environment
// variable SHAPEROUTER_KERNELS_ISA has, if it can run them: so that tests reach all.
const Kernels& ChosenKernels();

void Multiply(const Product& product, const Kernels& kernels, const Pool& pool);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_MULTIPLY_H_
