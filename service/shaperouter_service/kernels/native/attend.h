// Computes attention with all threads of a pool.

#ifndef SHAPEROUTER_KERNELS_ATTEND_H_
#define SHAPEROUTER_KERNELS_ATTEND_H_

#include "kernels.h"
#include "parallel.h"

namespace shaperouter {

void Attend(const Attention& attention, const Kernels& kernels, const Pool& pool);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_ATTEND_H_
