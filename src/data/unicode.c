/* Classes of Unicode characters, as the reference tokenizers know them. */
#include "data/tokenizer_private.h"

#include <string.h>
#include <utf8proc.h>

#define LU UTF8PROC_CATEGORY_LU
#define LL UTF8PROC_CATEGORY_LL
#define LM UTF8PROC_CATEGORY_LM
#define LO UTF8PROC_CATEGORY_LO
#define MN UTF8PROC_CATEGORY_MN
#define MC UTF8PROC_CATEGORY_MC
#define ND UTF8PROC_CATEGORY_ND
#define NO UTF8PROC_CATEGORY_NO
#define PD UTF8PROC_CATEGORY_PD
#define PO UTF8PROC_CATEGORY_PO
#define SM UTF8PROC_CATEGORY_SM
#define SO UTF8PROC_CATEGORY_SO
#define CF UTF8PROC_CATEGORY_CF

/* The reference tokenizers classify by Unicode 16. These characters came after Unicode 14, which is
 * what PCRE2 10.42 knows; utf8proc 2.8 knows Unicode 15. Naming those that a library knows is
 * harmless. tools/golden_tokenizer.py --categories prints the table. */
static const struct data_unicode_range added[] = {
    {0x897, 0x897, MN},     {0xcf3, 0xcf3, MC},     {0xece, 0xece, MN},     {0x1b4e, 0x1b4f, PO},
    {0x1b7f, 0x1b7f, PO},   {0x1c89, 0x1c89, LU},   {0x1c8a, 0x1c8a, LL},   {0x2427, 0x2429, SO},
    {0x2ffc, 0x2fff, SO},   {0x31e4, 0x31e5, SO},   {0x31ef, 0x31ef, SO},   {0xa7cb, 0xa7cc, LU},
    {0xa7cd, 0xa7cd, LL},   {0xa7da, 0xa7da, LU},   {0xa7db, 0xa7db, LL},   {0xa7dc, 0xa7dc, LU},
    {0x105c0, 0x105f3, LO}, {0x10d40, 0x10d49, ND}, {0x10d4a, 0x10d4d, LO}, {0x10d4e, 0x10d4e, LM},
    {0x10d4f, 0x10d4f, LO}, {0x10d50, 0x10d65, LU}, {0x10d69, 0x10d6d, MN}, {0x10d6e, 0x10d6e, PD},
    {0x10d6f, 0x10d6f, LM}, {0x10d70, 0x10d85, LL}, {0x10d8e, 0x10d8f, SM}, {0x10ec2, 0x10ec4, LO},
    {0x10efc, 0x10eff, MN}, {0x1123f, 0x11240, LO}, {0x11241, 0x11241, MN}, {0x11380, 0x11389, LO},
    {0x1138b, 0x1138b, LO}, {0x1138e, 0x1138e, LO}, {0x11390, 0x113b5, LO}, {0x113b7, 0x113b7, LO},
    {0x113b8, 0x113ba, MC}, {0x113bb, 0x113c0, MN}, {0x113c2, 0x113c2, MC}, {0x113c5, 0x113c5, MC},
    {0x113c7, 0x113ca, MC}, {0x113cc, 0x113cd, MC}, {0x113ce, 0x113ce, MN}, {0x113cf, 0x113cf, MC},
    {0x113d0, 0x113d0, MN}, {0x113d1, 0x113d1, LO}, {0x113d2, 0x113d2, MN}, {0x113d3, 0x113d3, LO},
    {0x113d4, 0x113d5, PO}, {0x113d7, 0x113d8, PO}, {0x113e1, 0x113e2, MN}, {0x116d0, 0x116e3, ND},
    {0x11b00, 0x11b09, PO}, {0x11bc0, 0x11be0, LO}, {0x11be1, 0x11be1, PO}, {0x11bf0, 0x11bf9, ND},
    {0x11f00, 0x11f01, MN}, {0x11f02, 0x11f02, LO}, {0x11f03, 0x11f03, MC}, {0x11f04, 0x11f10, LO},
    {0x11f12, 0x11f33, LO}, {0x11f34, 0x11f35, MC}, {0x11f36, 0x11f3a, MN}, {0x11f3e, 0x11f3f, MC},
    {0x11f40, 0x11f40, MN}, {0x11f41, 0x11f41, MC}, {0x11f42, 0x11f42, MN}, {0x11f43, 0x11f4f, PO},
    {0x11f50, 0x11f59, ND}, {0x11f5a, 0x11f5a, MN}, {0x1342f, 0x1342f, LO}, {0x13439, 0x1343f, CF},
    {0x13440, 0x13440, MN}, {0x13441, 0x13446, LO}, {0x13447, 0x13455, MN}, {0x13460, 0x143fa, LO},
    {0x16100, 0x1611d, LO}, {0x1611e, 0x16129, MN}, {0x1612a, 0x1612c, MC}, {0x1612d, 0x1612f, MN},
    {0x16130, 0x16139, ND}, {0x16d40, 0x16d42, LM}, {0x16d43, 0x16d6a, LO}, {0x16d6b, 0x16d6c, LM},
    {0x16d6d, 0x16d6f, PO}, {0x16d70, 0x16d79, ND}, {0x18cff, 0x18cff, LO}, {0x1b132, 0x1b132, LO},
    {0x1b155, 0x1b155, LO}, {0x1cc00, 0x1ccef, SO}, {0x1ccf0, 0x1ccf9, ND}, {0x1cd00, 0x1ceb3, SO},
    {0x1d2c0, 0x1d2d3, NO}, {0x1df25, 0x1df2a, LL}, {0x1e030, 0x1e06d, LM}, {0x1e08f, 0x1e08f, MN},
    {0x1e4d0, 0x1e4ea, LO}, {0x1e4eb, 0x1e4eb, LM}, {0x1e4ec, 0x1e4ef, MN}, {0x1e4f0, 0x1e4f9, ND},
    {0x1e5d0, 0x1e5ed, LO}, {0x1e5ee, 0x1e5ef, MN}, {0x1e5f0, 0x1e5f0, LO}, {0x1e5f1, 0x1e5fa, ND},
    {0x1e5ff, 0x1e5ff, PO}, {0x1f6dc, 0x1f6dc, SO}, {0x1f774, 0x1f776, SO}, {0x1f77b, 0x1f77f, SO},
    {0x1f7d9, 0x1f7d9, SO}, {0x1f8b2, 0x1f8bb, SO}, {0x1f8c0, 0x1f8c1, SO}, {0x1fa75, 0x1fa77, SO},
    {0x1fa87, 0x1fa89, SO}, {0x1fa8f, 0x1fa8f, SO}, {0x1faad, 0x1faaf, SO}, {0x1fabb, 0x1fabf, SO},
    {0x1fac6, 0x1fac6, SO}, {0x1face, 0x1facf, SO}, {0x1fada, 0x1fadc, SO}, {0x1fadf, 0x1fadf, SO},
    {0x1fae8, 0x1fae9, SO}, {0x1faf7, 0x1faf8, SO}, {0x1fbcb, 0x1fbef, SO}, {0x2b739, 0x2b739, LO},
    {0x2ebf0, 0x2ee5d, LO}, {0x31350, 0x323af, LO},
};

/* The reference's normal forms are those of Unicode 9. To them these characters, which have got a
 * combining class or a composition since, are letters that stand alone.
 * tools/golden_tokenizer.py --marks prints the table. */
static const struct data_unicode_range later_marks[] = {
    {0x7fd, 0x7fd, 0},     {0x898, 0x89f, 0},     {0x8ca, 0x8d3, 0},     {0x9fe, 0x9fe, 0},
    {0xc3c, 0xc3c, 0},     {0xd3b, 0xd3c, 0},     {0xeba, 0xeba, 0},     {0x1715, 0x1715, 0},
    {0x1abf, 0x1ace, 0},   {0x1df6, 0x1dfa, 0},   {0xa82c, 0xa82c, 0},   {0x10d24, 0x10d27, 0},
    {0x10eab, 0x10eac, 0}, {0x10efd, 0x10eff, 0}, {0x10f46, 0x10f50, 0}, {0x10f82, 0x10f85, 0},
    {0x11070, 0x11070, 0}, {0x1133b, 0x1133b, 0}, {0x1145e, 0x1145e, 0}, {0x11839, 0x1183a, 0},
    {0x11930, 0x11930, 0}, {0x11938, 0x11938, 0}, {0x1193d, 0x1193e, 0}, {0x11943, 0x11943, 0},
    {0x119e0, 0x119e0, 0}, {0x11a34, 0x11a34, 0}, {0x11a47, 0x11a47, 0}, {0x11a99, 0x11a99, 0},
    {0x11d42, 0x11d42, 0}, {0x11d44, 0x11d45, 0}, {0x11d97, 0x11d97, 0}, {0x11f41, 0x11f42, 0},
    {0x16ff0, 0x16ff1, 0}, {0x1e08f, 0x1e08f, 0}, {0x1e130, 0x1e136, 0}, {0x1e2ae, 0x1e2ae, 0},
    {0x1e2ec, 0x1e2ef, 0}, {0x1e4ec, 0x1e4ef, 0},
};

/* Marks to us that the reference's StripAccents leaves, as its tables are of an older Unicode.
 * tools/golden_tokenizer.py --accents prints the table. */
static const struct data_unicode_range later_accents[] = {
    {0x7fd, 0x7fd, 0},     {0x897, 0x89f, 0},     {0x8ca, 0x8d3, 0},     {0x9fe, 0x9fe, 0},
    {0xafa, 0xaff, 0},     {0xb55, 0xb55, 0},     {0xc04, 0xc04, 0},     {0xc3c, 0xc3c, 0},
    {0xcf3, 0xcf3, 0},     {0xd00, 0xd00, 0},     {0xd3b, 0xd3c, 0},     {0xd81, 0xd81, 0},
    {0xeba, 0xeba, 0},     {0xece, 0xece, 0},     {0x1715, 0x1715, 0},   {0x180f, 0x180f, 0},
    {0x1abf, 0x1ace, 0},   {0x1cf7, 0x1cf7, 0},   {0x1df6, 0x1dfa, 0},   {0xa82c, 0xa82c, 0},
    {0xa8ff, 0xa8ff, 0},   {0x10d24, 0x10d27, 0}, {0x10d69, 0x10d6d, 0}, {0x10eab, 0x10eac, 0},
    {0x10efc, 0x10eff, 0}, {0x10f46, 0x10f50, 0}, {0x10f82, 0x10f85, 0}, {0x11070, 0x11070, 0},
    {0x11073, 0x11074, 0}, {0x110c2, 0x110c2, 0}, {0x11145, 0x11146, 0}, {0x111c9, 0x111c9, 0},
    {0x111ce, 0x111cf, 0}, {0x11241, 0x11241, 0}, {0x1133b, 0x1133b, 0}, {0x113b8, 0x113c0, 0},
    {0x113c2, 0x113c2, 0}, {0x113c5, 0x113c5, 0}, {0x113c7, 0x113ca, 0}, {0x113cc, 0x113d0, 0},
    {0x113d2, 0x113d2, 0}, {0x113e1, 0x113e2, 0}, {0x1145e, 0x1145e, 0}, {0x1182c, 0x1183a, 0},
    {0x11930, 0x11935, 0}, {0x11937, 0x11938, 0}, {0x1193b, 0x1193e, 0}, {0x11940, 0x11940, 0},
    {0x11942, 0x11943, 0}, {0x119d1, 0x119d7, 0}, {0x119da, 0x119e0, 0}, {0x119e4, 0x119e4, 0},
    {0x11a01, 0x11a0a, 0}, {0x11a33, 0x11a39, 0}, {0x11a3b, 0x11a3e, 0}, {0x11a47, 0x11a47, 0},
    {0x11a51, 0x11a5b, 0}, {0x11a8a, 0x11a99, 0}, {0x11d31, 0x11d36, 0}, {0x11d3a, 0x11d3a, 0},
    {0x11d3c, 0x11d3d, 0}, {0x11d3f, 0x11d45, 0}, {0x11d47, 0x11d47, 0}, {0x11d8a, 0x11d8e, 0},
    {0x11d90, 0x11d91, 0}, {0x11d93, 0x11d97, 0}, {0x11ef3, 0x11ef6, 0}, {0x11f00, 0x11f01, 0},
    {0x11f03, 0x11f03, 0}, {0x11f34, 0x11f3a, 0}, {0x11f3e, 0x11f42, 0}, {0x11f5a, 0x11f5a, 0},
    {0x13440, 0x13440, 0}, {0x13447, 0x13455, 0}, {0x1611e, 0x1612f, 0}, {0x16f4f, 0x16f4f, 0},
    {0x16f7f, 0x16f87, 0}, {0x16fe4, 0x16fe4, 0}, {0x16ff0, 0x16ff1, 0}, {0x1cf00, 0x1cf2d, 0},
    {0x1cf30, 0x1cf46, 0}, {0x1e08f, 0x1e08f, 0}, {0x1e130, 0x1e136, 0}, {0x1e2ae, 0x1e2ae, 0},
    {0x1e2ec, 0x1e2ef, 0}, {0x1e4ec, 0x1e4ef, 0}, {0x1e5ee, 0x1e5ef, 0},
};

static const char *const category_names[] = {
    [UTF8PROC_CATEGORY_LU] = "Lu", [UTF8PROC_CATEGORY_LL] = "Ll", [UTF8PROC_CATEGORY_LT] = "Lt",
    [UTF8PROC_CATEGORY_LM] = "Lm", [UTF8PROC_CATEGORY_LO] = "Lo", [UTF8PROC_CATEGORY_MN] = "Mn",
    [UTF8PROC_CATEGORY_MC] = "Mc", [UTF8PROC_CATEGORY_ME] = "Me", [UTF8PROC_CATEGORY_ND] = "Nd",
    [UTF8PROC_CATEGORY_NL] = "Nl", [UTF8PROC_CATEGORY_NO] = "No", [UTF8PROC_CATEGORY_PC] = "Pc",
    [UTF8PROC_CATEGORY_PD] = "Pd", [UTF8PROC_CATEGORY_PS] = "Ps", [UTF8PROC_CATEGORY_PE] = "Pe",
    [UTF8PROC_CATEGORY_PI] = "Pi", [UTF8PROC_CATEGORY_PF] = "Pf", [UTF8PROC_CATEGORY_PO] = "Po",
    [UTF8PROC_CATEGORY_SM] = "Sm", [UTF8PROC_CATEGORY_SC] = "Sc", [UTF8PROC_CATEGORY_SK] = "Sk",
    [UTF8PROC_CATEGORY_SO] = "So", [UTF8PROC_CATEGORY_ZS] = "Zs", [UTF8PROC_CATEGORY_ZL] = "Zl",
    [UTF8PROC_CATEGORY_ZP] = "Zp",
};
enum { CATEGORIES = sizeof category_names / sizeof *category_names };

const struct data_unicode_range *data_unicode_added(int *count)
{
    *count = (int)(sizeof added / sizeof *added);
    return added;
}

const char *data_category_name(int category)
{
    const char *name = category > 0 && category < CATEGORIES ? category_names[category] : NULL;
    return name ? name : "Cn";
}

bool data_category_within(int category, const char *class)
{
    const char *name = data_category_name(category);
    return name[0] == class[0] && (class[1] == '\0' || name[1] == class[1]);
}

bool data_category_known(const char *class)
{
    for (int i = 1; i < CATEGORIES; i++)
        if (category_names[i] && data_category_within(i, class))
            return strlen(class) <= 2;
    return false;
}

static const struct data_unicode_range *range_of(const struct data_unicode_range *ranges,
                                                 size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && code >= ranges[low].first ? ranges + low : NULL;
}

int data_category(uint32_t code)
{
    int category = utf8proc_category((utf8proc_int32_t)code);
    if (category != UTF8PROC_CATEGORY_CN)
        return category;
    const struct data_unicode_range *range = range_of(added, sizeof added / sizeof *added, code);
    return range ? range->category : category;
}

bool data_is_later_mark(uint32_t code)
{
    return range_of(later_marks, sizeof later_marks / sizeof *later_marks, code) != NULL;
}

bool data_is_accent(uint32_t code)
{
    return (data_category_within(data_category(code), "M") &&
            !range_of(later_accents, sizeof later_accents / sizeof *later_accents, code)) ||
           code == 0x1cf2 || code == 0x1cf3; /* which are letters now */
}

bool data_is_later_compatible(uint32_t code)
{
    static const struct data_unicode_range later[] = {
        {0x32ff, 0x32ff, 0},   {0xa7f2, 0xa7f4, 0},   {0xab69, 0xab69, 0},
        {0x10781, 0x10785, 0}, {0x10787, 0x107b0, 0}, {0x107b2, 0x107ba, 0},
        {0x1e030, 0x1e06d, 0}, {0x1f16c, 0x1f16c, 0}, {0x1fbf0, 0x1fbf9, 0}};
    return range_of(later, sizeof later / sizeof *later, code) != NULL;
}

int data_lowercase(uint32_t code, uint32_t small[2])
{
    /* Of letters that utf8proc may not know yet: those of a range have theirs at one distance. */
    static const struct {
        uint32_t first, last;
        int32_t to;
    } added[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                 {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                 {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                 {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                 {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};
    small[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    if (code == 0x130) { /* I with a dot: i and a dot */
        small[0] = 'i';
        small[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        if (code >= added[i].first && code <= added[i].last)
            small[0] = (uint32_t)((int32_t)code + added[i].to);
    return 1;
}

bool data_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* Unicode's annex 18: alphabetic, marks, decimal digits, connectors and the two joiners. Circled
 * and squared letters are symbols, and alphabetic. */
bool data_is_word(uint32_t code)
{
    int category = data_category(code);
    return data_category_within(category, "L") || data_category_within(category, "M") ||
           category == ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC ||
           code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}
