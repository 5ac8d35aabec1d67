/* MinHash signatures of documents, and the bands by which near ones are found.
 *
 * Hash function i of a shingle x is the upper half of a_i x + b_i, in 64 bits (multiply-add-shift:
 * Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
 * without primes", STACS 1996); a_i and b_i are Philox words, so that they are the same everywhere.
 */
#include "data/minhash.h"
#include "data/tokenizer_private.h"

#include <string.h>
#include <xxhash.h>

/* ---- which bands ----------------------------------------------------------------------------- */

double ls_dedup_probability(double similarity, int bands, int rows)
{
    double band = 1, none = 1;
    for (int i = 0; i < rows; i++)
        band *= similarity;
    for (int i = 0; i < bands; i++)
        none *= 1 - band;
    return 1 - none;
}

void ls_dedup_bands(double near, int hashes, int *bands, int *rows)
{
    *rows = 1;
    for (int more = 2; more <= hashes; more++)
        if (ls_dedup_probability(near, hashes / more, more) >= 0.95)
            *rows = more;
    *bands = hashes / *rows;
}

/* ---- shingles -------------------------------------------------------------------------------- */

void data_minhash_init(struct data_minhash *minhash, int hashes, int shingle)
{
    struct ls_philox_key key = ls_philox_key_of(0, "minhash");
    *minhash = (struct data_minhash){.hashes = hashes, .shingle = shingle};
    for (uint32_t i = 0; i < (uint32_t)hashes; i++) {
        uint32_t word[4], counter[4] = {i, 0, 0, 0};
        ls_philox(key, counter, word);
        minhash->factor[i] = ((uint64_t)word[0] << 32 | word[1]) | 1;
        minhash->term[i] = (uint64_t)word[2] << 32 | word[3];
    }
}

/* Letters, digits and marks in small letters; nothing else of a word is hashed. Returns the bytes
 * in small[4 * (end - begin) + 8], which are code points. */
static size_t small_letters(const char *text, const struct data_word *word, uint32_t *small)
{
    size_t count = 0;
    for (size_t at = word->begin; at < word->end;) {
        unsigned char c = (unsigned char)text[at];
        size_t bytes = 1;
        if (c < 0x80) {
            unsigned char letter = c | 0x20;
            if ((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9'))
                small[count++] = c >= '0' && c <= '9' ? c : letter;
        } else {
            uint32_t code = data_utf8_decode((const unsigned char *)text + at, &bytes);
            const char *class = data_category_name(data_category(code));
            if (strchr("LNM", class[0]))
                count += (size_t)data_lowercase(code, small + count);
        }
        at += bytes;
    }
    return count * sizeof *small;
}

static void add_shingle(const struct data_minhash *minhash, const uint64_t *words, int count,
                        uint32_t *signature)
{
    const uint64_t x = XXH3_64bits(words, (size_t)count * sizeof *words);
    for (int i = 0; i < minhash->hashes; i++) {
        uint32_t value = (uint32_t)((minhash->factor[i] * x + minhash->term[i]) >> 32);
        signature[i] = value < signature[i] ? value : signature[i];
    }
}

int data_minhash_sign(const struct data_minhash *minhash, const struct ls_text *text,
                      struct ls_text *scratch, uint32_t *signature, bool *empty,
                      struct ls_error *error)
{
    uint64_t words[DATA_SHINGLE_MAX];
    struct data_word word = {0};
    int64_t count = 0;
    const int shingle = minhash->shingle;
    memset(signature, 0xff, (size_t)minhash->hashes * sizeof *signature);
    while (data_word_next(text->bytes, text->count, &word)) {
        scratch->count = 0;
        /* A character has one code point or two in small letters. */
        int status = data_text_reserve(scratch, 8 * (word.end - word.begin) + 8, error);
        if (status)
            return status;
        size_t bytes = small_letters(text->bytes, &word, (uint32_t *)(void *)scratch->bytes);
        if (bytes == 0)
            continue;
        if (count >= shingle)
            memmove(words, words + 1, (size_t)(shingle - 1) * sizeof *words);
        words[ls_min(count, shingle - 1)] = XXH3_64bits(scratch->bytes, bytes);
        if (++count >= shingle)
            add_shingle(minhash, words, shingle, signature);
    }
    *empty = count == 0;
    if (count > 0 && count < shingle)
        add_shingle(minhash, words, (int)count, signature);
    return LS_OK;
}
