"""Measures the console with a large fleet: `make bench-console`.

64 workers that compute nothing report 100 graphs each, of 20 models with 2,000 signatures together,
and change some of them twice a second. A real router watches them and answers 20 requests a second.
The cost of the console is the difference of the router's time with and without an open page.
"""
