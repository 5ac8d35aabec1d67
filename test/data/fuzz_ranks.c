/* tiktoken's rank files: any lines behind the 256 bytes; then a text encoded with what was read:
 * decoding must give it back. */
#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void round_trip(const struct ls_tokenizer *tokenizer)
{
    static const char text[] = "abcaabbccabc abcaaa\xff<|endoftext|> \xe4\xb8\xad 123\n\n";
    struct ls_encoder *encoder;
    struct ls_token_list ids = {0};
    struct ls_text decoded = {0};
    struct ls_error error = {0};
    LS_ASSERT(ls_encoder_new(tokenizer, &encoder, &error) == LS_OK);
    LS_ASSERT(ls_encode(encoder, text, sizeof text - 1, &ids, &error) == LS_OK);
    LS_ASSERT(ls_decode(tokenizer, ids.ids, ids.count, &decoded, &error) == LS_OK);
    LS_ASSERT(decoded.count == sizeof text - 1 && memcmp(decoded.bytes, text, decoded.count) == 0);
    ls_text_release(&decoded);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char *const patterns[] = {"gpt2", "cl100k_base", "o200k_base", "llama3", "qwen"};
    if (bytes == 0)
        return 0;
    char *text = malloc(16 * 256 + bytes);
    if (!text)
        return 0;
    size_t count = 0;
    for (int byte = 0; byte < 256 && data[0] % 8 != 0; byte++)
        count += (size_t)sprintf(text + count, "%c%c== %d\n", digits[byte >> 2],
                                 digits[(byte & 3) << 4], byte);
    memcpy(text + count, data + 1, bytes - 1);
    struct ls_error error = {0};
    struct ls_tokenizer tokenizer = {.name = strdup("fuzzed")};
    int status = data_tokenizer_parse_ranks(
        &tokenizer, patterns[data[0] / 8 % 5],
        (struct data_named_text){"file", text, count + bytes - 1}, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    if (status == LS_OK)
        round_trip(&tokenizer);
    data_tokenizer_release(&tokenizer);
    free(text);
    return 0;
}
