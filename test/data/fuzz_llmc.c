/* llm.c's header of a token file. */
#include "data/data_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    struct data_tokens tokens;
    bool is_llmc;
    int status = data_llmc_parse("x.bin", data, (int64_t)bytes, &is_llmc, &tokens, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && is_llmc && error.text[0]));
    LS_ASSERT(status != LS_OK || !is_llmc ||
              DATA_LLMC_HEADER_BYTES + tokens.tokens * (int64_t)ls_dtype_bytes(tokens.dtype) ==
                  (int64_t)bytes);
    return 0;
}
