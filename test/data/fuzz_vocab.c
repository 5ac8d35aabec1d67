/* vocab.json: any bytes alone, or in the place of a part of a good file. */
#include "data/tokenizer_private.h"

#include "fuzz_vocabulary.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const char *vocab, size_t bytes)
{
    struct ls_error error = {0};
    struct data_bpe bpe;
    int32_t eod = -1;
    int status = data_bpe_parse(&bpe, (struct data_named_text){"vocab", vocab, bytes},
                                (struct data_named_text){"merges", "a b\n", 4}, &eod, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    LS_ASSERT(status != LS_OK || (bpe.vocabulary > 256 && eod >= 0 && eod < bpe.vocabulary));
    data_bpe_release(&bpe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint16_t place, removed;
    if (bytes < sizeof place + sizeof removed)
        return 0;
    memcpy(&place, data, sizeof place);
    memcpy(&removed, data + 2, sizeof removed);
    data += 4;
    bytes -= 4;
    char good[VOCABULARY_BYTES_MAX], edited[2 * VOCABULARY_BYTES_MAX];
    size_t good_bytes = make_vocabulary(good);
    if (place == 0 || bytes > VOCABULARY_BYTES_MAX) {
        check((const char *)data, bytes);
        return 0;
    }
    size_t begin = place % good_bytes, end = begin + removed % (good_bytes - begin + 1);
    memcpy(edited, good, begin);
    memcpy(edited + begin, data, bytes);
    memcpy(edited + begin + bytes, good + end, good_bytes - end);
    check(edited, begin + bytes + good_bytes - end);
    return 0;
}
