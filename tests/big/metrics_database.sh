#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The metrics database of 100,000 steps with 12 layers of 64 experts: its size, and the totals of its blocks (bench/metrics_bench.c).
exec "${abs_top_builddir:?}/bench/metrics-bench"
