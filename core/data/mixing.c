/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of a task in proportion to its examples. */
#include "config.h"

#include <math.h>

#include "data/mixing.h"

double syi_mixing_rate(double n_examples, double scale, double maximum, double temperature)
{
    double rate = n_examples * scale;
    if (maximum > 0 && rate > maximum) rate = maximum;
    return temperature == 1 ? rate : pow(rate, 1 / temperature);
}
