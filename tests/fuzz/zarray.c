/* SPDX-License-Identifier: Apache-2.0 */
/* .zarray on any bytes: an array that is taken has extents, chunks and a dtype that make sense. */
#include "config.h"

#include "fuzz.h"
#include "import/zarr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct syi_zarr zarr;
    struct sy_error err = {0};
    if (syi_zarr_parse(&zarr, "input", (const char *)data, size, &err)) {
        FUZZ_REQUIRE((err.code == SY_EFORMAT || err.code == SY_EUNSUPPORTED) && err.text[0]);
        return 0;
    }
    FUZZ_REQUIRE(zarr.rank >= 0 && zarr.rank <= SYI_SAFETENSORS_RANK);
    for (int d = 0; d < zarr.rank; d++) FUZZ_REQUIRE(zarr.dims[d] >= 1 && zarr.chunk[d] >= 1);
    FUZZ_REQUIRE(syi_zarr_bytes(&zarr) >= syi_safetensors_element_bytes(zarr.dtype));
    FUZZ_REQUIRE(zarr.separator == '.' || zarr.separator == '/');
    syi_zarr_close(&zarr);
    return 0;
}
