/* SPDX-License-Identifier: Apache-2.0 */
/* sy_answers: outputs of a call, which belong to the program and need the model no more. */
#include "config.h"

#include <math.h>

#include "api/answers.h"

size_t sy_answers_inputs(const struct sy_answers *answers)
{
    return answers->outcomes.n;
}

size_t sy_answers_outputs(const struct sy_answers *answers)
{
    return answers->outcomes.decodes;
}

struct sy_answer sy_answer(const struct sy_answers *answers, size_t input, size_t output)
{
    const struct syi_outcomes *o = &answers->outcomes;
    struct sy_answer none = {.text = "", .score = NAN, .status = SY_EINVAL};
    if (input >= o->n || output >= o->decodes) return none;
    const struct syi_outcome *item = &o->item[input * o->decodes + output];
    if (item->too_long) return none;
    struct sy_answer answer = {
        .text = o->text.data + item->at, .bytes = item->bytes, .score = (double)item->score};
    if (isinf(item->score)) answer.status = SY_ENOENT;
    return answer;
}

void sy_answers_free(struct sy_answers *answers)
{
    if (!answers) return;
    syi_outcomes_free(&answers->outcomes);
    syi_free(answers);
}
