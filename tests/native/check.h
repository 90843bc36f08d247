// A check that ends a test's program, and says what does not hold.

#ifndef SHAPEROUTER_TESTS_CHECK_H_
#define SHAPEROUTER_TESTS_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (false)

#endif  // SHAPEROUTER_TESTS_CHECK_H_
