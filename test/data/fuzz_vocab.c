/* vocab.json; test/data/golden/vocab.json is a good seed. */
#include "data/private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    struct data_bpe bpe;
    int rc = data_bpe_parse(&bpe, (struct data_named_text){"vocab", (const char *)data, bytes},
                            (struct data_named_text){"merges", "h e\n", 4}, &error);
    LS_ASSERT(rc == LS_OK || (rc == LS_EDATA && error.text[0]));
    if (rc == LS_OK)
        LS_ASSERT(bpe.vocabulary > 256 && bpe.eod >= 0 && bpe.eod < bpe.vocabulary);
    data_bpe_release(&bpe);
    return 0;
}
