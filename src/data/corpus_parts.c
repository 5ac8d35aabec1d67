/* The texts of a corpus in parts of about a mebibyte; a long document is cut. */
#include "data/data_private.h"

enum { PART_BYTES = 1 << 20, READ_BYTES_MIN = 1 << 16 };

/* The document's text since `begin` does not end in this part: what follows a place where it may be
 * cut is carried over. *cut is false if there is no such place yet. */
static int document_cut(struct data_parts *parts, struct ls_text *text, size_t begin, void *part,
                        bool *cut, struct ls_error *error)
{
    size_t bytes = text->count - begin;
    size_t keep = parts->cut(parts->tokenizer, (unsigned char *)text->bytes + begin, bytes);
    *cut = keep > 0 || bytes == 0;
    parts->open = keep > 0;
    if (keep == 0)
        return LS_OK;
    int status = data_text_put(&parts->carry, text->bytes + begin + keep, bytes - keep, error);
    text->count = begin + keep;
    return status ? status : parts->put(parts->user, part, begin, false, error);
}

int data_part_read(struct data_parts *parts, struct ls_text *text, void *part,
                   struct ls_error *error)
{
    text->count = 0;
    int status = data_text_put(text, parts->carry.bytes, parts->carry.count, error);
    parts->carry.count = 0;
    size_t begin = 0, goal = PART_BYTES;
    while (!status && !parts->end) {
        if (text->count >= goal) {
            bool cut;
            status = document_cut(parts, text, begin, part, &cut, error);
            if (status || cut)
                break;
            goal = 2 * text->count;
        }
        enum data_part what;
        size_t want = text->count < goal ? goal - text->count : 0;
        status = data_corpus_read(parts->corpus, (size_t)ls_max((int64_t)want, READ_BYTES_MIN),
                                  text, &what, error);
        parts->end = !status && what == DATA_CORPUS_END;
        if (!status && what == DATA_DOCUMENT_END) {
            status = parts->put(parts->user, part, begin, true, error);
            begin = text->count;
        }
    }
    return status;
}
