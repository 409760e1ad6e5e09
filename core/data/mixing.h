/* SPDX-License-Identifier: Apache-2.0 */
/* How often a task's examples come in a mixture: the rate of a task, divided by the sum of all. */
#ifndef SYI_MIXING_H
#define SYI_MIXING_H

/* seqio's mixing_rate_num_examples: min(n_examples scale, maximum) ^ (1 / temperature). maximum 0 (or less): none. A
 * temperature over 1 draws rates together (T5 takes 2^18 to 2^21 as maximum, mT5 1 / 0.3 as temperature); temperature
 * over 0. A fixed rate needs no function. */
double syi_mixing_rate(double n_examples, double scale, double maximum, double temperature);

#endif
