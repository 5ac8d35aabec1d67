/* merges.txt beside a small vocabulary; then text encoded with what was read:
 * decoding must give it back. */
#include "data/tokenizer_private.h"

#include "fuzz_vocabulary.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void round_trip(const struct data_bpe *bpe, const unsigned char *text, size_t bytes)
{
    struct data_bpe_scratch scratch;
    struct ls_token_list scan = {0}, heap = {0};
    if (data_bpe_scratch_init(&scratch, NULL))
        abort();
    int status = data_bpe_encode(bpe, &scratch, text, bytes, &scan, NULL);
    status = status ? status : data_bpe_encode_long(bpe, &scratch, text, bytes, &heap, NULL);
    LS_ASSERT(status == LS_OK && scan.count == heap.count);
    LS_ASSERT(memcmp(scan.ids, heap.ids, (size_t)scan.count * sizeof *scan.ids) == 0);
    size_t at = 0;
    for (int64_t i = 0; i < scan.count; i++) {
        struct data_string token = data_string(&bpe->tokens, scan.ids[i]);
        LS_ASSERT(token.count <= bytes - at && memcmp(token.bytes, text + at, token.count) == 0);
        at += token.count;
    }
    LS_ASSERT(at == bytes);
    ls_token_list_release(&heap);
    ls_token_list_release(&scan);
    data_bpe_scratch_release(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char vocabulary[VOCABULARY_BYTES_MAX];
    struct ls_error error = {0};
    struct data_bpe bpe;
    int32_t eod = -1;
    int status = data_bpe_parse(
        &bpe, (struct data_named_text){"vocab", vocabulary, make_vocabulary(vocabulary)},
        (struct data_named_text){"merges", (const char *)data, bytes}, &eod, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    if (status == LS_OK)
        round_trip(&bpe, (const unsigned char *)"abcaabbccabcabcaaabbbcccbacbacxa", 32);
    data_bpe_release(&bpe);
    return 0;
}
