/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles on any bytes: what is accepted is one value, and each tensor in it lies in its storage. */
#include "config.h"

#include <string.h>

#include "fuzz.h"
#include "import/pickle.h"

static void check_tensor(const struct syi_pickle *p, uint32_t value)
{
    struct syi_pickle_tensor t;
    struct sy_error err = {0};
    if (syi_pickle_tensor(p, value, &t, &err)) {
        FUZZ_REQUIRE((err.code == SY_EFORMAT || err.code == SY_EUNSUPPORTED) && err.text[0]);
        return;
    }
    int64_t n = 1, last = t.offset;
    FUZZ_REQUIRE(t.rank >= 0 && t.rank <= SYI_PICKLE_RANK && t.offset >= 0);
    for (int d = 0; d < t.rank; d++) FUZZ_REQUIRE(!__builtin_mul_overflow(n, t.dims[d], &n) || n == 0);
    for (int d = 0; n && d < t.rank; d++) last += (t.dims[d] - 1) * t.stride[d];
    FUZZ_REQUIRE(!n || last < t.count);
    FUZZ_REQUIRE((const uint8_t *)t.key >= p->bytes &&
                 (const uint8_t *)t.key + t.n_key <= p->bytes + p->n_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct syi_pickle p;
    struct sy_error err = {0};
    if (syi_pickle_read(&p, "input", data, size, &err)) {
        FUZZ_REQUIRE((err.code == SY_EFORMAT || err.code == SY_EUNSUPPORTED) && err.text[0]);
    } else {
        FUZZ_REQUIRE(p.used <= size && p.root < p.n_values);
        for (uint32_t i = 0; i < p.n_values; i++) check_tensor(&p, i);
        syi_pickle_member(&p, p.root, "little_endian");
    }
    syi_pickle_free(&p);
    return 0;
}
