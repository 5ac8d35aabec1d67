/* What tensor parallel may cut a model into. */
#include <lockstep/nn.h>

#include <stddef.h>

/* Heads, columns of the feed-forward and rows of the vocabulary in equal parts; key/value heads are
 * shared if there are fewer of them. */
int ls_model_admits_tiles(const struct ls_model_config *c, int64_t parts, struct ls_error *error)
{
    int64_t kv = c->kv_heads;
    const struct {
        const char *what;
        int64_t size;
    } cut[] = {{"the model's query heads", c->heads},
               {"the feed-forward width", c->ffn},
               {"the padded vocabulary", c->vocab_padded}};
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++)
        if (cut[i].size % parts)
            return ls_error_set(error, LS_ELAYOUT, "it does not divide %s, %ld", cut[i].what,
                                (long)cut[i].size);
    if (kv % parts && parts % kv)
        return ls_error_set(error, LS_ELAYOUT,
                            "it is neither a divisor nor a multiple of the %ld key/value heads",
                            (long)kv);
    int sharers = ls_tp_sharers(parts, kv);
    if (c->head_dim % sharers)
        return ls_error_set(error, LS_ELAYOUT,
                            "%d ranks would share each key/value head, and its width, %ld, is not "
                            "a multiple of that",
                            sharers, (long)c->head_dim);
    return LS_OK;
}

const struct ls_word ls_lora_bases[] = {
    {"none", LS_BLOCKS_NONE}, {"int8", LS_BLOCKS_INT8}, {"nf4", LS_BLOCKS_NF4}, {NULL, 0}};

/* Blocks lie along the columns: those of the matrices behind attention and the feed-forward are
 * cut. */
int ls_lora_base_check(const struct ls_model_config *c, int64_t tp, struct ls_error *error)
{
    const struct {
        const char *what;
        int64_t columns, parts;
    } widths[] = {{"model.channels", c->channels, 1},
                  {"model.heads * model.head_dim", c->heads * c->head_dim, tp},
                  {"model.ffn", c->ffn, tp}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0] && c->lora.base; i++)
        if (widths[i].columns % (widths[i].parts * LS_BLOCK_VALUES))
            return ls_error_set(error, LS_ELAYOUT,
                                "%s = %ld%s, and lora.base = %s needs a multiple of %d in each "
                                "matrix: its blocks lie along the columns",
                                widths[i].what, (long)widths[i].columns,
                                widths[i].parts > 1 ? " is cut" : "",
                                ls_word_of(ls_lora_bases, (int)c->lora.base), LS_BLOCK_VALUES);
    return LS_OK;
}

int ls_model_admits_tp(const struct ls_model_config *c, const struct ls_numerics *n, int64_t tp,
                       struct ls_error *error)
{
    int status = ls_model_admits_tiles(c, tp, error);
    if (!status)
        status = ls_lora_base_check(c, tp, error);
    if (status || n->fast)
        return status;
    if (n->tp_tiles % tp)
        return ls_error_set(error, LS_ELAYOUT, "it does not divide numerics.tp_tiles, %ld",
                            (long)n->tp_tiles);
    int64_t tiles = n->tp_tiles / tp;
    if (tp > 1 && !ls_is_pow2(tiles))
        return ls_error_set(
            error, LS_ELAYOUT,
            "each rank would have %ld of numerics.tp_tiles = %ld tiles, which is not "
            "a power of two and so no subtree",
            (long)tiles, (long)n->tp_tiles);
    if (tp > c->kv_heads && !ls_is_pow2(c->heads / tp))
        return ls_error_set(error, LS_ELAYOUT,
                            "ranks would share key/value heads with %ld query heads each, which is "
                            "not a power of two",
                            (long)(c->heads / tp));
    return LS_OK;
}
