/* A second kernel for privacy certificates, written from docs/certificates.md and docs/proofs/kernel.md.
 *
 *   cc -O2 -o kernel kernel.c -lgmp && ./kernel certificate.json
 *
 * Exit code 0: every claim is proven. 1: a claim is not proven, or the digest is wrong.
 * 2: not a certificate. 3: a law, a norm, a scheme or a claim that this kernel does not support.
 *
 * It supports discrete Laplace and discrete Gaussian noise (any numbers of rounds of both), and
 * Gaussian noise, with or without Poisson sampling in each round, for a sensitivity of one number. It
 * reads only the step of the grid from the evidence, and chooses windows, precision and cells itself.
 *
 * The order is: text, numbers, functions with enclosures, listings, laws, verdict. The fields lo and hi
 * are a lower and an upper bound. Numbers are integers in units of 2^-WORK, and masses in units of
 * 2^-MASS. Floats only propose the edges of cells, which are then checked. */
#include <ctype.h>
#include <gmp.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROVEN, REFUSED, NO_CERTIFICATE, UNSUPPORTED };
enum { MASS = 192, WORK = 416, LIMIT = 1 << 21, TEXT = 1 << 22 };

static void stop(int code, const char *format, ...) {
    static const char *kind[] = {"proven", "refused", "not a certificate", "unsupported"};
    va_list rest;
    va_start(rest, format);
    printf("%s: ", kind[code]);
    vprintf(format, rest);
    printf("\n");
    va_end(rest);
    exit(code);
}

static void *room(size_t count, size_t size) {
    void *found = calloc(count ? count : 1, size);
    if (!found) stop(UNSUPPORTED, "out of memory");
    return found;
}

/* ---- Text: JSON without floats, and the digest of its canonical form ---- */

typedef struct Node {
    char kind;               /* { [ " 0 (an integer) */
    char *key, *text;        /* as written, without quotes */
    struct Node *child, *next;
} Node;

static const char *at;

static void spaces(void) { while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++; }

static char *copied(const char *from, size_t length) {
    char *text = room(length + 1, 1);
    memcpy(text, from, length);
    return text;
}

static char *quoted(void) {
    const char *from = ++at;
    for (; *at != '"'; at++)
        if (*at < ' ' || *at > '~' || *at == '\\') stop(NO_CERTIFICATE, "a string is not plain ASCII");
    return copied(from, (size_t)(at++ - from));
}

static Node *value(int depth) {
    Node *node = room(1, sizeof *node), **last = &node->child;
    if (depth > 16) stop(NO_CERTIFICATE, "nested too deeply");
    spaces();
    node->kind = *at;
    if (*at == '"') { node->text = quoted(); return node; }
    if (*at == '{' || *at == '[') {
        char close = *at++ == '{' ? '}' : ']';
        for (spaces(); *at != close; spaces()) {
            char *key = NULL;
            if (node->child) { if (*at++ != ',') stop(NO_CERTIFICATE, "a comma is missing"); spaces(); }
            if (close == '}') {
                if (*at != '"') stop(NO_CERTIFICATE, "a key is missing");
                key = quoted();
                for (Node *other = node->child; other; other = other->next)
                    if (!strcmp(other->key, key)) stop(NO_CERTIFICATE, "%s occurs twice", key);
                spaces();
                if (*at++ != ':') stop(NO_CERTIFICATE, "a colon is missing");
            }
            *last = value(depth + 1);
            (*last)->key = key;
            last = &(*last)->next;
        }
        at++;
        return node;
    }
    const char *from = at;
    if (*at == '-') at++;
    while (isdigit((unsigned char)*at)) at++;
    node->text = copied(from, (size_t)(at - from));
    node->kind = '0';
    if (!isdigit((unsigned char)at[-1]) || strchr(".eE", *at) || (from[0] == '0' && at - from > 1))
        stop(NO_CERTIFICATE, "a value is neither a string nor an integer");
    return node;
}

static Node *field(Node *node, const char *key, char kind) {
    for (Node *child = node->child; child; child = child->next)
        if (!strcmp(child->key, key)) {
            if (child->kind != kind) stop(NO_CERTIFICATE, "%s has the wrong type", key);
            return child;
        }
    return NULL;
}

static Node *needed(Node *node, const char *key, char kind) {
    Node *found = field(node, key, kind);
    if (!found) stop(NO_CERTIFICATE, "%s is missing", key);
    return found;
}

/* Every key of `node` is in the list, which ends with NULL. */
static void only(Node *node, ...) {
    if (node->kind != '{') stop(NO_CERTIFICATE, "a value is not an object");
    for (Node *child = node->child; child; child = child->next) {
        va_list keys;
        const char *key;
        va_start(keys, node);
        while ((key = va_arg(keys, const char *)) && strcmp(key, child->key));
        va_end(keys);
        if (!key) stop(NO_CERTIFICATE, "%s is an unknown key", child->key);
    }
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(Node *const *)a)->key, (*(Node *const *)b)->key);
}

static void canonical(Node *node, FILE *out, int top) {
    if (node->kind == '"') { fprintf(out, "\"%s\"", node->text); return; }
    if (node->kind == '0') { fputs(node->text, out); return; }
    size_t count = 0, done = 0;
    for (Node *child = node->child; child; child = child->next) count++;
    Node **children = room(count, sizeof *children);
    for (Node *child = node->child; child; child = child->next)
        if (!top || strcmp(child->key, "digest")) children[done++] = child;
    if (node->kind == '{') qsort(children, done, sizeof *children, by_key);
    fputc(node->kind, out);
    for (size_t i = 0; i < done; i++) {
        if (i) fputc(',', out);
        if (node->kind == '{') fprintf(out, "\"%s\":", children[i]->key);
        canonical(children[i], out, 0);
    }
    fputc(node->kind == '{' ? '}' : ']', out);
    free(children);
}

/* The constants of SHA-256 are roots of the first primes, computed here rather than copied. */
static uint32_t fraction_of_root(unsigned prime, unsigned degree) {
    mpz_t n;
    mpz_init_set_ui(n, prime);
    mpz_mul_2exp(n, n, 32 * degree);
    mpz_root(n, n, degree);
    uint32_t found = (uint32_t)mpz_get_ui(n);
    mpz_clear(n);
    return found;
}

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha256(const unsigned char *text, size_t length, char *hex) {
    uint32_t k[64], h[8], w[64], s[8];
    for (unsigned n = 2, found = 0; found < 64; n++) {
        unsigned d = 2;
        while (d * d <= n && n % d) d++;
        if (d * d <= n) continue;
        if (found < 8) h[found] = fraction_of_root(n, 2);
        k[found++] = fraction_of_root(n, 3);
    }
    size_t whole = (length + 9 + 63) / 64 * 64;
    unsigned char *padded = room(whole, 1);
    memcpy(padded, text, length);
    padded[length] = 0x80;
    for (int i = 0; i < 8; i++) padded[whole - 1 - i] = (unsigned char)((uint64_t)length * 8 >> 8 * i);
    for (unsigned char *block = padded; block < padded + whole; block += 64) {
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16
                   | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3)
                   + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        memcpy(s, h, sizeof s);
        for (int i = 0; i < 64; i++) {
            uint32_t one = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25))
                           + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
            uint32_t two = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22))
                           + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            memmove(s + 1, s, 7 * sizeof *s);
            s[4] += one;
            s[0] = one + two;
        }
        for (int i = 0; i < 8; i++) h[i] += s[i];
    }
    for (int i = 0; i < 8; i++) sprintf(hex + 8 * i, "%08x", h[i]);
    free(padded);
}

/* ---- Numbers ---- */

static long whole(Node *node, long least, long most) {
    if (strlen(node->text) > 12) stop(NO_CERTIFICATE, "%s is out of range", node->key);
    long found = atol(node->text);
    if (found < least || found > most) stop(NO_CERTIFICATE, "%s is out of range", node->key);
    return found;
}

static const char *word(Node *node, const char *one, const char *other) {
    if (strcmp(node->text, one) && strcmp(node->text, other))
        stop(NO_CERTIFICATE, "%s is neither %s nor %s", node->key, one, other);
    return node->text;
}

/* A rational >= 0 in lowest terms. */
static void rational(mpq_t out, Node *node) {
    mpq_init(out);
    char *text = node->text, *back = NULL;
    size_t length = strlen(text);
    if (length > 400) stop(UNSUPPORTED, "%s is longer than 400 digits", node->key);
    if (!length || strspn(text, "0123456789/") != length || mpq_set_str(out, text, 10)
        || !mpz_sgn(mpq_denref(out)))
        stop(NO_CERTIFICATE, "%s is not a rational", node->key);
    mpq_canonicalize(out);
    back = mpq_get_str(NULL, 10, out);
    if (strcmp(back, text)) stop(NO_CERTIFICATE, "%s is not in lowest terms", node->key);
    free(back);
}

/* A decimal >= 0 with `digits` digits after the point. */
static void decimal(mpq_t out, Node *node, long digits) {
    mpq_init(out);
    char *point = strchr(node->text, '.'), *plain = copied(node->text, strlen(node->text));
    size_t after = point ? strlen(point + 1) : 0, before = point ? (size_t)(point - node->text) : strlen(plain);
    if (point) memmove(plain + before, plain + before + 1, after + 1);
    if (!before || after != (size_t)digits || (before > 1 && plain[0] == '0') || strlen(plain) > 400
        || strspn(plain, "0123456789") != strlen(plain) || mpz_set_str(mpq_numref(out), plain, 10))
        stop(NO_CERTIFICATE, "%s is not a decimal with %ld digits after the point", node->key, digits);
    mpz_ui_pow_ui(mpq_denref(out), 10, (unsigned long)digits);
    mpq_canonicalize(out);
    free(plain);
}

static void set_ratio(mpq_t out, const mpz_t n, unsigned bits) {
    mpq_set_z(out, n);
    mpq_div_2exp(out, out, bits);
}

/* ---- Functions, each between two integers in units of 2^-WORK ---- */

typedef struct { mpz_t lo, hi; } Between;

static void between_init(Between *b) { mpz_init(b->lo); mpz_init(b->hi); }
static void between_clear(Between *b) { mpz_clear(b->lo); mpz_clear(b->hi); }

static void from_rational(Between *b, const mpq_t x) {
    mpz_mul_2exp(b->lo, mpq_numref(x), WORK);
    mpz_cdiv_q(b->hi, b->lo, mpq_denref(x));
    mpz_fdiv_q(b->lo, b->lo, mpq_denref(x));
}

/* Of numbers >= 0. */
static void times(Between *out, const Between *a, const Between *b) {
    mpz_mul(out->lo, a->lo, b->lo);
    mpz_mul(out->hi, a->hi, b->hi);
    mpz_fdiv_q_2exp(out->lo, out->lo, WORK);
    mpz_cdiv_q_2exp(out->hi, out->hi, WORK);
}

static void reciprocal(Between *b) {
    mpz_t one;
    mpz_init(one);
    mpz_setbit(one, 2 * WORK);
    mpz_cdiv_q(b->lo, one, b->lo);
    mpz_fdiv_q(b->hi, one, b->hi);
    mpz_swap(b->lo, b->hi);
    mpz_clear(one);
}

/* e^x: the series at |x|/2^k <= 2^-8, whose terms are positive and whose remainder is below twice the
   last term; then k squarings. */
static void exponential(Between *out, const mpq_t x) {
    mpq_t y;
    mpq_init(y);
    mpq_abs(y, x);
    double size = mpq_get_d(y);
    if (size > 4000) stop(UNSUPPORTED, "a loss beyond 4000");
    unsigned k = 8;
    while (size > 1) { size /= 2; k++; }
    mpq_div_2exp(y, y, k);
    Between t, term;
    between_init(&t);
    between_init(&term);
    from_rational(&t, y);
    mpz_set_ui(out->lo, 0);
    mpz_setbit(out->lo, WORK);
    mpz_set(out->hi, out->lo);
    mpz_set(term.lo, out->lo);
    mpz_set(term.hi, out->lo);
    for (unsigned n = 1; mpz_cmp_ui(term.hi, 1) > 0; n++) {
        times(&term, &term, &t);
        mpz_fdiv_q_ui(term.lo, term.lo, n);
        mpz_cdiv_q_ui(term.hi, term.hi, n);
        mpz_add(out->lo, out->lo, term.lo);
        mpz_add(out->hi, out->hi, term.hi);
    }
    mpz_add_ui(out->hi, out->hi, 2);
    while (k--) times(out, out, out);
    if (mpq_sgn(x) < 0) reciprocal(out);
    between_clear(&t);
    between_clear(&term);
    mpq_clear(y);
}

/* arctan(1/n), by its alternating series. */
static void arctan(Between *out, unsigned n) {
    mpz_t power, term;
    mpz_init(power);
    mpz_init(term);
    mpz_setbit(power, WORK);
    mpz_fdiv_q_ui(power, power, n);
    mpz_set_ui(out->lo, 0);
    long terms = 0;
    for (unsigned i = 1; mpz_sgn(power); i += 2, terms++) {
        mpz_fdiv_q_ui(term, power, i);
        if (i % 4 == 1) mpz_add(out->lo, out->lo, term); else mpz_sub(out->lo, out->lo, term);
        mpz_fdiv_q_ui(power, power, n * n);
    }
    mpz_add_ui(out->hi, out->lo, (unsigned long)(3 * terms + 3));  /* the error of a term is at most 2 */
    mpz_sub_ui(out->lo, out->lo, (unsigned long)(3 * terms + 3));
    mpz_clear(power);
    mpz_clear(term);
}

static Between inverse_root;  /* 1/sqrt(2 pi) */

static void prepare(void) {
    Between a, b;
    between_init(&a);
    between_init(&b);
    between_init(&inverse_root);
    arctan(&a, 5);
    arctan(&b, 239);
    mpz_mul_ui(a.lo, a.lo, 32);  /* 2 pi = 32 arctan(1/5) - 8 arctan(1/239) */
    mpz_mul_ui(a.hi, a.hi, 32);
    mpz_submul_ui(a.lo, b.hi, 8);
    mpz_submul_ui(a.hi, b.lo, 8);
    reciprocal(&a);
    mpz_mul_2exp(a.lo, a.lo, WORK);
    mpz_mul_2exp(a.hi, a.hi, WORK);
    mpz_sqrt(inverse_root.lo, a.lo);
    mpz_sqrt(inverse_root.hi, a.hi);
    mpz_add_ui(inverse_root.hi, inverse_root.hi, 1);
    between_clear(&a);
    between_clear(&b);
}

/* The mass below x of the standard normal law: 1/2 +- phi(z) (z + z^3/3 + z^5/15 + ...), z = |x|. */
static void normal(Between *out, const mpq_t x) {
    mpq_t y;
    mpq_init(y);
    mpq_mul(y, x, x);
    Between square, term, phi;
    between_init(&square);
    between_init(&term);
    between_init(&phi);
    from_rational(&square, y);
    double size = mpq_get_d(y);
    if (size > 400) {  /* beyond 20 the tail is below e^-200 < 2^-288 */
        mpz_set_ui(out->lo, 0);
        mpz_set_ui(out->hi, 0);
        mpz_setbit(out->hi, WORK - 288);
        mpz_t one;
        mpz_init(one);
        mpz_setbit(one, WORK);
        if (mpq_sgn(x) > 0) { mpz_sub(out->lo, one, out->hi); mpz_set(out->hi, one); }
        mpz_clear(one);
    } else {
        mpq_div_2exp(y, y, 1);
        mpq_neg(y, y);
        exponential(&phi, y);
        times(&phi, &phi, &inverse_root);
        mpq_abs(y, x);
        from_rational(&term, y);
        mpz_set(out->lo, term.lo);
        mpz_set(out->hi, term.hi);
        for (unsigned n = 3; mpz_cmp_ui(term.hi, 1) > 0 || n < 2 * size + 2; n += 2) {
            times(&term, &term, &square);
            mpz_fdiv_q_ui(term.lo, term.lo, n);
            mpz_cdiv_q_ui(term.hi, term.hi, n);
            mpz_add(out->lo, out->lo, term.lo);
            mpz_add(out->hi, out->hi, term.hi);
        }
        mpz_add_ui(out->hi, out->hi, 2);  /* each later term is less than half of the one before */
        times(out, out, &phi);
        mpz_t half;
        mpz_init(half);
        mpz_setbit(half, WORK - 1);
        if (mpq_sgn(x) < 0) {
            mpz_sub(out->lo, half, out->lo);
            mpz_sub(out->hi, half, out->hi);
            mpz_swap(out->lo, out->hi);
            if (mpz_sgn(out->lo) < 0) mpz_set_ui(out->lo, 0);
        } else {
            mpz_add(out->lo, out->lo, half);
            mpz_add(out->hi, out->hi, half);
        }
        mpz_clear(half);
    }
    between_clear(&square);
    between_clear(&term);
    between_clear(&phi);
    mpq_clear(y);
}

/* ---- Listings: masses w[0], ..., w[count - 1] in units of 2^-MASS at start, start + step, ...
   From above, the remaining mass is at infinity; from below, it is dropped. ---- */

typedef struct {
    mpq_t start, step;
    size_t count;
    mpz_t *w;
} Listing;

static Listing listing(size_t count) {
    Listing l;
    if (count > LIMIT) stop(UNSUPPORTED, "more than %d losses", LIMIT);
    mpq_init(l.start);
    mpq_init(l.step);
    l.count = count;
    l.w = room(count, sizeof *l.w);
    for (size_t i = 0; i < count; i++) mpz_init(l.w[i]);
    return l;
}

static void listing_clear(Listing *l) {
    for (size_t i = 0; i < l->count; i++) mpz_clear(l->w[i]);
    free(l->w);
    mpq_clear(l->start);
    mpq_clear(l->step);
}

/* The number of places at an end whose total mass is at most `cut`; this mass is returned in `cut`. */
static size_t ends(const Listing *l, int top, mpz_t cut) {
    mpz_t sum;
    mpz_init(sum);
    size_t n = 0;
    for (; n + 1 < l->count; n++) {
        mpz_t *w = &l->w[top ? l->count - 1 - n : n];
        mpz_add(sum, sum, *w);
        if (mpz_cmp(sum, cut) > 0) { mpz_sub(sum, sum, *w); break; }
    }
    mpz_set(cut, sum);
    mpz_clear(sum);
    return n;
}

/* Trim a listing to a window. From above, mass at the low end moves up and mass at the high end moves to
   infinity; from below, the low end is dropped and the high end moves down. */
static Listing trimmed(Listing *l, int above, const mpz_t cut) {
    mpz_t low, high;
    mpz_init_set(low, cut);
    mpz_init_set(high, cut);
    size_t first = ends(l, 0, low), last = l->count - ends(l, 1, high);
    if (last <= first) { last = l->count; mpz_set_ui(high, 0); }
    Listing out = listing(last - first);
    mpq_set(out.step, l->step);
    mpq_set_ui(out.start, first, 1);
    mpq_mul(out.start, out.start, l->step);
    mpq_add(out.start, out.start, l->start);
    for (size_t i = first; i < last; i++) mpz_set(out.w[i - first], l->w[i]);
    if (above) mpz_add(out.w[0], out.w[0], low); else mpz_add(out.w[last - first - 1], out.w[last - first - 1], high);
    mpz_clear(low);
    mpz_clear(high);
    listing_clear(l);
    return out;
}

enum { SLOT = (2 * MASS + 24 + 63) / 64 };

static void packed(mpz_t out, const Listing *l) {
    uint64_t *limbs = room(l->count * SLOT, sizeof *limbs);
    for (size_t i = 0; i < l->count; i++) mpz_export(limbs + i * SLOT, NULL, -1, 8, 0, 0, l->w[i]);
    mpz_import(out, l->count * SLOT, -1, 8, 0, 0, limbs);
    free(limbs);
}

/* All sums of two losses: one product of two integers, whose slots are too wide for a carry. */
static Listing convolved(const Listing *a, const Listing *b, int above, const mpz_t cut) {
    Listing out = listing(a->count + b->count - 1);
    mpz_t x, y;
    mpz_init(x);
    mpz_init(y);
    packed(x, a);
    packed(y, b);
    mpz_mul(x, x, y);
    uint64_t *limbs = room((out.count + 1) * SLOT, sizeof *limbs);
    mpz_export(limbs, NULL, -1, 8, 0, 0, x);
    for (size_t i = 0; i < out.count; i++) {
        mpz_import(out.w[i], SLOT, -1, 8, 0, 0, limbs + i * SLOT);
        mpz_fdiv_q_2exp(out.w[i], out.w[i], MASS);
    }
    free(limbs);
    mpz_clear(x);
    mpz_clear(y);
    mpq_set(out.step, a->step);
    mpq_add(out.start, a->start, b->start);
    return trimmed(&out, above, cut);
}

/* delta of a listing at epsilon, from above or below, in units of 2^-WORK. */
static void end(mpz_t out, const Listing *l, const mpq_t epsilon, int above) {
    mpq_t loss, gap;
    mpq_init(loss);
    mpq_init(gap);
    mpq_sub(gap, epsilon, l->start);
    mpq_div(gap, gap, l->step);
    mpz_t place, rest, sum;
    mpz_init(place);
    mpz_init(rest);
    mpz_init(sum);
    mpz_fdiv_q(place, mpq_numref(gap), mpq_denref(gap));
    mpz_add_ui(place, place, 1);  /* the first place of a loss above epsilon */
    size_t first = mpz_sgn(place) < 0 ? 0 : mpz_cmp_ui(place, l->count) > 0 ? l->count : mpz_get_ui(place);
    Between ratio, front;
    between_init(&ratio);
    between_init(&front);
    mpq_neg(gap, l->step);
    exponential(&ratio, gap);
    for (size_t i = l->count; i-- > first;) {  /* Horner, rounded down for an upper bound and up for a lower one */
        mpz_mul(rest, rest, above ? ratio.lo : ratio.hi);
        if (above) mpz_fdiv_q_2exp(rest, rest, WORK); else mpz_cdiv_q_2exp(rest, rest, WORK);
        mpz_mul_2exp(place, l->w[i], WORK - MASS);
        mpz_add(rest, rest, place);
        mpz_add(sum, sum, place);
    }
    mpq_set_ui(gap, first, 1);
    mpq_mul(gap, gap, l->step);
    mpq_add(loss, l->start, gap);
    mpq_sub(gap, epsilon, loss);
    if (first == l->count) { mpz_set_ui(front.lo, 0); mpz_set_ui(front.hi, 0); } else exponential(&front, gap);
    mpz_mul(rest, rest, above ? front.lo : front.hi);
    if (above) mpz_fdiv_q_2exp(rest, rest, WORK); else mpz_cdiv_q_2exp(rest, rest, WORK);
    mpz_sub(out, sum, rest);
    if (above) {  /* the mass that is not listed is at infinity */
        mpz_set_ui(sum, 0);
        mpz_setbit(sum, WORK);
        mpz_add(out, out, sum);
        for (size_t i = 0; i < l->count; i++) {
            mpz_mul_2exp(place, l->w[i], WORK - MASS);
            mpz_sub(out, out, place);
        }
    }
    mpq_clear(loss);
    mpq_clear(gap);
    mpz_clear(place);
    mpz_clear(rest);
    mpz_clear(sum);
    between_clear(&ratio);
    between_clear(&front);
}

/* ---- Laws ---- */

typedef struct {
    char law;                 /* L: discrete Laplace, D: discrete Gaussian, G: Gaussian */
    mpq_t parameter, shift;   /* scale, sigma^2 or sigma; sensitivity */
    int sampled;
    mpq_t rate;
    long rounds;
} Part;

static void mass_of(mpz_t out, const mpz_t numerator, const mpz_t denominator) {
    mpz_mul_2exp(out, numerator, MASS);
    mpz_fdiv_q(out, out, denominator);
}

/* Losses (d - 2x)/scale, x = d, ..., 0, of masses b^d, (1 - b) b^x, 1 over 1 + b. */
static Listing discrete_laplace(const Part *p) {
    if (mpz_cmp_ui(mpq_numref(p->shift), LIMIT) > 0) stop(UNSUPPORTED, "a shift beyond %d", LIMIT);
    unsigned long d = mpz_get_ui(mpq_numref(p->shift));
    Listing l = listing(d + 1);
    Between b, power;
    between_init(&b);
    between_init(&power);
    mpq_t x;
    mpq_init(x);
    mpq_inv(x, p->parameter);
    mpq_mul_2exp(l.step, x, 1);
    mpq_mul(l.start, p->shift, x);
    mpq_neg(l.start, l.start);
    mpq_neg(x, x);
    exponential(&b, x);
    mpz_t one, below, top;
    mpz_init(one);
    mpz_init(below);
    mpz_init(top);
    mpz_setbit(one, WORK);
    mpz_add(below, one, b.hi);
    mpz_sub(top, one, b.hi);
    mpz_set(power.lo, one);
    mpz_set(power.hi, one);
    for (unsigned long n = 0; n <= d; n++) {
        mpz_t *w = &l.w[d - n];
        if (n == 0 || n == d) {
            mass_of(*w, power.lo, below);
        } else {
            mpz_mul(*w, power.lo, top);
            mpz_fdiv_q_2exp(*w, *w, WORK);
            mass_of(*w, *w, below);
        }
        times(&power, &power, &b);
    }
    mpz_clears(one, below, top, NULL);
    mpq_clear(x);
    between_clear(&b);
    between_clear(&power);
    return l;
}

/* Losses d (d - 2x)/2v, of masses e^(-x^2/2v) over their sum, x = M, ..., -M. */
static Listing discrete_gaussian(const Part *p) {
    double v = mpq_get_d(p->parameter), reach = sqrt(2 * v * (MASS + 8) * log(2)) + 2;
    if (!(reach < LIMIT / 4)) stop(UNSUPPORTED, "sigma_squared is too large");
    long m = (long)reach;
    Listing l = listing((size_t)(2 * m + 1));
    mpq_t x, half;
    mpq_init(x);
    mpq_init(half);
    mpq_div(l.step, p->shift, p->parameter);
    mpq_set_si(x, -2 * m, 1);
    mpq_add(x, x, p->shift);
    mpq_div_2exp(x, x, 1);
    mpq_mul(l.start, l.step, x);
    mpq_inv(half, p->parameter);
    mpq_div_2exp(half, half, 1);
    Between *e = room((size_t)m + 2, sizeof *e);
    mpz_t sum, rest;
    mpz_init(sum);
    mpz_init(rest);
    for (long n = 0; n <= m + 1; n++) {
        between_init(&e[n]);
        mpq_set_si(x, -n, 1);
        mpq_mul(x, x, x);
        mpq_mul(x, x, half);
        mpq_neg(x, x);
        exponential(&e[n], x);
        if (n <= m) { mpz_add(sum, sum, e[n].hi); if (n) mpz_add(sum, sum, e[n].hi); }
    }
    /* Beyond m, terms fall by e^(-m/v) at least. */
    mpq_set_si(x, -m, 1);
    mpq_canonicalize(x);
    mpq_div(x, x, p->parameter);
    Between fall;
    between_init(&fall);
    exponential(&fall, x);
    mpz_setbit(rest, WORK);
    mpz_sub(rest, rest, fall.hi);
    if (mpz_sgn(rest) <= 0) stop(UNSUPPORTED, "sigma_squared is too large");
    mpz_mul_2exp(fall.hi, e[m + 1].hi, WORK + 1);
    mpz_cdiv_q(rest, fall.hi, rest);
    mpz_add(sum, sum, rest);
    for (long n = -m; n <= m; n++) mass_of(l.w[m - n], e[labs(n)].lo, sum);
    for (long n = 0; n <= m + 1; n++) between_clear(&e[n]);
    free(e);
    between_clear(&fall);
    mpz_clears(sum, rest, NULL);
    mpq_clears(x, half, NULL);
    return l;
}

/* The same losses on a finer grid, whose step divides that of the listing. */
static Listing stretched(Listing *l, const mpq_t step) {
    mpq_t ratio;
    mpq_init(ratio);
    mpq_div(ratio, l->step, step);
    if (mpz_cmp_ui(mpq_numref(ratio), LIMIT) > 0)
        stop(UNSUPPORTED, "the losses of the rounds have no common grid");
    size_t by = mpz_get_ui(mpq_numref(ratio));
    Listing out = listing((l->count - 1) * by + 1);
    for (size_t i = 0; i < l->count; i++) mpz_set(out.w[i * by], l->w[i]);
    mpq_set(out.start, l->start);
    mpq_set(out.step, step);
    mpq_clear(ratio);
    listing_clear(l);
    return out;
}

/* A cell of Gaussian noise, in units of its scale: its masses, and its losses in units of the step. */
typedef struct { Between p, q; long from, to; } Cell;
typedef struct { Cell *cells; size_t count; mpq_t slack; } Table;

/* Checks e^(place step - slack) <= number and, if `upper` is set, number <= e^(place step + slack). */
static void checked(const Between *number, long place, const mpq_t step, const mpq_t slack, int upper) {
    mpq_t x;
    mpq_init(x);
    mpq_set_si(x, place, 1);
    mpq_mul(x, x, step);
    mpq_sub(x, x, slack);
    Between e;
    between_init(&e);
    exponential(&e, x);
    if (mpz_cmp(e.hi, number->lo) > 0) stop(UNSUPPORTED, "the loss at an edge of a cell is not on the grid");
    if (upper) {
        mpq_add(x, x, slack);
        mpq_add(x, x, slack);
        exponential(&e, x);
        if (mpz_cmp(e.lo, number->hi) < 0)
            stop(UNSUPPORTED, "the loss at an edge of a cell is not on the grid");
    }
    between_clear(&e);
    mpq_clear(x);
}

/* P = (1 - q) N(0, 1) + q N(s, 1), Q = N(0, 1). The loss log(1 - q + q e^(sx - s^2/2)) rises in x, so on
   a cell between two edges it lies between their losses. Edges are near losses of the grid. */
static Table cells_of(const Part *p, const mpq_t step) {
    mpq_t s, x, y, other;
    mpq_inits(s, x, y, other, NULL);
    mpq_div(s, p->shift, p->parameter);
    mpq_set_ui(other, 1, 1);
    mpq_sub(other, other, p->rate);
    Table t = {.count = 0};
    mpq_init(t.slack);
    mpq_set_ui(t.slack, 1, 1);
    mpq_div_2exp(t.slack, t.slack, 40);
    double h = mpq_get_d(step), shift = mpq_get_d(s), rate = mpq_get_d(p->rate), none = mpq_get_d(other);
    double reach = 13.5, high = log(none + rate * exp(shift * (reach + shift) - shift * shift / 2));
    double floor_ = none > 0 ? log(none) : -shift * reach - shift * shift;
    if (!(high / h < 1e7 && floor_ / h > -1e7)) stop(UNSUPPORTED, "a step that is too fine");
    long place = (long)floor(floor_ / h), size = 1024;
    long last_place = place;
    t.cells = room((size_t)size, sizeof *t.cells);
    Between edge_q, edge_s, rate_b, none_b, odds, old_q, old_s, cut;
    Between *all[] = {&edge_q, &edge_s, &rate_b, &none_b, &odds, &old_q, &old_s, &cut};
    for (int i = 0; i < 8; i++) between_init(all[i]);
    from_rational(&rate_b, p->rate);
    from_rational(&none_b, other);
    if (none > 0) checked(&none_b, place, step, t.slack, 0);
    double last = -reach;
    int open = none <= 0;  /* at rate 1 the loss has no lower bound: skip the cell below the first edge */
    while (last_place * h < high) {
        /* The next loss of the grid whose edge is at least 2^-10 above the last edge. */
        long next = last_place + 1;
        double edge;
        for (long stride = 1;; stride++, next = last_place + stride) {
            double above = exp(next * h) - none;
            edge = above > 0 ? (log(above / rate) + shift * shift / 2) / shift : -INFINITY;
            if (edge >= last + 0x1p-10 && edge > -reach) break;
        }
        mpq_set_d(x, edge);
        normal(&edge_q, x);
        mpq_sub(y, x, s);
        normal(&edge_s, y);
        mpq_div_2exp(y, s, 1);
        mpq_sub(y, x, y);
        mpq_mul(y, y, s);
        exponential(&odds, y);  /* e^(s(x - s/2)) */
        times(&odds, &odds, &rate_b);
        mpz_add(odds.lo, odds.lo, none_b.lo);
        mpz_add(odds.hi, odds.hi, none_b.hi);
        checked(&odds, next, step, t.slack, 1);
        if (!open) {
            if ((long)t.count == size) {
                t.cells = realloc(t.cells, (size_t)(size *= 2) * sizeof *t.cells);
                if (!t.cells) stop(UNSUPPORTED, "out of memory");
            }
            Cell *c = &t.cells[t.count++];
            between_init(&c->p);
            between_init(&c->q);
            mpz_sub(c->q.lo, edge_q.lo, old_q.hi);
            mpz_sub(c->q.hi, edge_q.hi, old_q.lo);
            mpz_sub(cut.lo, edge_s.lo, old_s.hi);
            mpz_sub(cut.hi, edge_s.hi, old_s.lo);
            if (mpz_sgn(c->q.lo) < 0) mpz_set_ui(c->q.lo, 0);
            if (mpz_sgn(cut.lo) < 0) mpz_set_ui(cut.lo, 0);
            times(&cut, &cut, &rate_b);
            times(&c->p, &c->q, &none_b);
            mpz_add(c->p.lo, c->p.lo, cut.lo);
            mpz_add(c->p.hi, c->p.hi, cut.hi);
            c->from = last_place;
            c->to = next;
        }
        open = 0;
        mpz_set(old_q.lo, edge_q.lo);
        mpz_set(old_q.hi, edge_q.hi);
        mpz_set(old_s.lo, edge_s.lo);
        mpz_set(old_s.hi, edge_s.hi);
        last = edge;
        last_place = next;
    }
    if (!t.count) stop(UNSUPPORTED, "a step that is too coarse");
    for (int i = 0; i < 8; i++) between_clear(all[i]);
    mpq_clears(s, x, y, other, NULL);
    return t;
}

static void swapped(Table *t) {
    for (size_t i = 0; i < t->count; i++) {
        Cell *c = &t->cells[i];
        Between kept = c->p;
        c->p = c->q;
        c->q = kept;
        long from = c->from;
        c->from = -c->to;
        c->to = -from;
    }
    for (size_t i = 0, j = t->count; i + 1 < j--; i++) {
        Cell kept = t->cells[i];
        t->cells[i] = t->cells[j];
        t->cells[j] = kept;
    }
}

static void power_of_e(Between *out, long place, const mpq_t step, const mpq_t more) {
    mpq_t x;
    mpq_init(x);
    mpq_set_si(x, place, 1);
    mpq_mul(x, x, step);
    mpq_add(x, x, more);
    exponential(out, x);
    mpq_clear(x);
}

/* Lemma A: losses in [A, B] become A with mass (q e^A - p e^(A - B))/(1 - e^(A - B)) from below, and B
   with the rest. A = from step - slack and B = to step + slack; the grid is moved up by the slack. */
static Listing table_above(const Table *t, const mpq_t step) {
    long first = t->cells[0].from;
    Listing l = listing((size_t)(t->cells[t->count - 1].to - first + 1));
    mpq_set(l.step, step);
    mpq_set_si(l.start, first, 1);
    mpq_mul(l.start, l.start, step);
    mpq_add(l.start, l.start, t->slack);
    mpq_t less, twice;
    mpq_inits(less, twice, NULL);
    mpq_neg(less, t->slack);
    mpq_mul_2exp(twice, less, 1);
    Between a, fall;
    between_init(&a);
    between_init(&fall);
    mpz_t low, gap, all;
    mpz_inits(low, gap, all, NULL);
    for (size_t i = 0; i < t->count; i++) {
        Cell *c = &t->cells[i];
        power_of_e(&a, c->from, step, less);
        power_of_e(&fall, c->from - c->to, step, twice);
        mpz_mul(low, c->q.lo, a.lo);
        mpz_submul(low, c->p.hi, fall.hi);
        mpz_set_ui(gap, 0);
        mpz_setbit(gap, WORK);
        mpz_sub(gap, gap, fall.lo);
        mpz_fdiv_q(low, low, gap);                  /* in units of 2^-WORK */
        mpz_fdiv_q_2exp(low, low, WORK - MASS);
        mpz_fdiv_q_2exp(all, c->p.lo, WORK - MASS);
        if (mpz_sgn(low) < 0) mpz_set_ui(low, 0);
        if (mpz_cmp(low, all) > 0) mpz_set(low, all);
        mpz_sub(all, all, low);
        mpz_add(l.w[c->from - first], l.w[c->from - first], low);
        mpz_add(l.w[c->to - first], l.w[c->to - first], all);
    }
    mpz_clears(low, gap, all, NULL);
    mpq_clears(less, twice, NULL);
    between_clear(&a);
    between_clear(&fall);
    return l;
}

/* Lemma B: the masses p and q below a loss T are merged with the next cells, and a share of the last one,
   until the excess p - e^T q of these equals the deficit e^T q - p. The remainder at the end is dropped. */
static Listing table_below(const Table *t, const mpq_t step) {
    long first = t->cells[0].from;
    Listing l = listing((size_t)(t->cells[t->count - 1].to - first + 1));
    mpq_set(l.step, step);
    mpq_set_si(l.start, first, 1);
    mpq_mul(l.start, l.start, step);
    mpq_t zero;
    mpq_init(zero);
    Between e;
    between_init(&e);
    mpz_t p, q, deficit, excess, share, part;
    mpz_inits(p, q, deficit, excess, share, part, NULL);
    for (size_t i = 0; i < t->count; i++) {
        Cell *c = &t->cells[i];
        size_t place = (size_t)(c->from - first);
        power_of_e(&e, c->from, step, zero);
        mpz_mul(deficit, q, e.hi);
        mpz_cdiv_q_2exp(deficit, deficit, WORK);
        mpz_sub(deficit, deficit, p);
        if (mpz_sgn(deficit) < 0) mpz_set_ui(deficit, 0);
        for (;; c = &t->cells[++i]) {  /* cells that are merged completely */
            mpz_mul(excess, c->q.hi, e.hi);
            mpz_cdiv_q_2exp(excess, excess, WORK);
            mpz_sub(excess, c->p.lo, excess);
            if (mpz_cmp(deficit, excess) <= 0 || i + 1 == t->count) break;
            mpz_sub(deficit, deficit, excess);
            mpz_add(p, p, c->p.lo);
        }
        if (mpz_cmp(deficit, excess) > 0) break;
        mpz_mul_2exp(share, deficit, WORK);
        if (mpz_sgn(excess)) mpz_cdiv_q(share, share, excess);
        mpz_mul(part, share, c->p.lo);
        mpz_fdiv_q_2exp(part, part, WORK);
        mpz_add(part, part, p);
        mpz_fdiv_q_2exp(part, part, WORK - MASS);
        mpz_add(l.w[place], l.w[place], part);
        mpz_set_ui(part, 0);
        mpz_setbit(part, WORK);
        mpz_sub(part, part, share);
        mpz_mul(p, part, c->p.lo);
        mpz_fdiv_q_2exp(p, p, WORK);
        mpz_mul(q, part, c->q.hi);
        mpz_cdiv_q_2exp(q, q, WORK);
    }
    mpz_clears(p, q, deficit, excess, share, part, NULL);
    mpq_clear(zero);
    between_clear(&e);
    return l;
}

/* ---- All rounds ---- */

static mpz_t cut_unit;  /* a product of k of all n rounds cuts off at most k/n of this at each end */

static Listing copies(const Listing *one, long rounds, int above, long all) {
    Listing out = *one, next;
    int mine = 0;
    long bit = 1, made = 1;
    while (2 * bit <= rounds) bit *= 2;
    mpz_t cut;
    mpz_init(cut);
    for (bit /= 2; bit; bit /= 2) {
        for (int odd = 0; odd < (rounds & bit ? 2 : 1); odd++) {
            made += odd ? 1 : made;
            mpz_mul_ui(cut, cut_unit, (unsigned long)made);
            mpz_fdiv_q_ui(cut, cut, (unsigned long)all);
            next = convolved(&out, odd ? one : &out, above, cut);
            if (mine) listing_clear(&out);
            out = next;
            mine = 1;
        }
    }
    mpz_clear(cut);
    if (!mine) {
        out = listing(one->count);
        mpq_set(out.start, one->start);
        mpq_set(out.step, one->step);
        for (size_t i = 0; i < one->count; i++) mpz_set(out.w[i], one->w[i]);
    }
    return out;
}

static Listing together(Listing *ones, Part *parts, size_t count, int above) {
    long all = 0;
    for (size_t i = 0; i < count; i++) all += parts[i].rounds;
    Listing out = copies(&ones[0], parts[0].rounds, above, all);
    for (size_t i = 1; i < count; i++) {
        Listing more = copies(&ones[i], parts[i].rounds, above, all), next;
        next = convolved(&out, &more, above, cut_unit);
        listing_clear(&out);
        listing_clear(&more);
        out = next;
    }
    return out;
}

typedef struct {
    Listing above[2], below[2];  /* one for each direction */
    int scenarios;
    mpq_t mean[2];               /* for unsampled Gaussian rounds: bounds on their total shift */
} Curve;

static void common_step(mpq_t out, Listing *l, size_t count) {
    mpz_t a, b;
    mpz_inits(a, b, NULL);
    mpq_set(out, l[0].step);
    for (size_t i = 1; i < count; i++) {  /* gcd(a/b, c/d) = gcd(ad, cb)/bd */
        mpz_mul(a, mpq_numref(out), mpq_denref(l[i].step));
        mpz_mul(b, mpq_numref(l[i].step), mpq_denref(out));
        mpz_gcd(a, a, b);
        mpz_mul(mpq_denref(out), mpq_denref(out), mpq_denref(l[i].step));
        mpz_set(mpq_numref(out), a);
        mpq_canonicalize(out);
    }
    mpz_clears(a, b, NULL);
}

static Curve curve_of(Part *parts, size_t count, const mpq_t step) {
    Curve c = {.scenarios = 1};
    size_t real = 0, sampled = 0;
    for (size_t i = 0; i < count; i++) {
        real += parts[i].law == 'G';
        sampled += (size_t)parts[i].sampled;
    }
    if (real && real < count) stop(UNSUPPORTED, "noise on the integers and on the reals in one certificate");
    Listing *ones = room(count, sizeof *ones);
    if (real && !sampled) {
        c.scenarios = 0;
        mpq_t sum, d;
        mpq_inits(sum, d, c.mean[0], c.mean[1], NULL);
        for (size_t i = 0; i < count; i++) {
            mpq_div(d, parts[i].shift, parts[i].parameter);
            mpq_mul(d, d, d);
            mpz_mul_ui(mpq_numref(d), mpq_numref(d), (unsigned long)parts[i].rounds);
            mpq_canonicalize(d);
            mpq_add(sum, sum, d);
        }
        mpz_t n;
        mpz_init(n);
        mpz_mul_2exp(n, mpq_numref(sum), 256);
        mpz_fdiv_q(n, n, mpq_denref(sum));
        mpz_sqrt(n, n);
        if (!mpz_sgn(n)) stop(UNSUPPORTED, "a total shift below 2^-128");
        set_ratio(c.mean[0], n, 128);
        mpz_add_ui(n, n, 1);
        set_ratio(c.mean[1], n, 128);
        mpz_clear(n);
        mpq_clears(sum, d, NULL);
        return c;
    }
    if (!real) {
        mpq_t common;
        mpq_init(common);
        for (size_t i = 0; i < count; i++)
            ones[i] = parts[i].law == 'L' ? discrete_laplace(&parts[i]) : discrete_gaussian(&parts[i]);
        common_step(common, ones, count);
        for (size_t i = 0; i < count; i++) ones[i] = stretched(&ones[i], common);
        c.above[0] = together(ones, parts, count, 1);
        c.below[0] = together(ones, parts, count, 0);
        return c;
    }
    Table *tables = room(count, sizeof *tables);
    for (size_t i = 0; i < count; i++) tables[i] = cells_of(&parts[i], step);
    c.scenarios = 2;
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < count; i++) {
            if (k) swapped(&tables[i]);
            ones[i] = table_above(&tables[i], step);
        }
        c.above[k] = together(ones, parts, count, 1);
        for (size_t i = 0; i < count; i++) { listing_clear(&ones[i]); ones[i] = table_below(&tables[i], step); }
        c.below[k] = together(ones, parts, count, 0);
        for (size_t i = 0; i < count; i++) listing_clear(&ones[i]);
    }
    return c;
}

/* delta(epsilon) of the worst scenario. */
static void delta(mpq_t out, const Curve *c, const mpq_t epsilon, int above) {
    mpz_t best, found;
    mpz_inits(best, found, NULL);
    for (int k = 0; k < c->scenarios; k++) {
        end(found, above ? &c->above[k] : &c->below[k], epsilon, above);
        if (!k || mpz_cmp(found, best) > 0) mpz_set(best, found);
    }
    if (!c->scenarios) {  /* Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m), which rises in m */
        mpq_t x, y;
        mpq_inits(x, y, NULL);
        mpq_div_2exp(x, c->mean[above], 1);
        mpq_div(y, epsilon, c->mean[above]);
        Between a, b, e;
        between_init(&a);
        between_init(&b);
        between_init(&e);
        mpq_sub(x, x, y);
        normal(&a, x);
        mpq_sub(x, x, c->mean[above]);
        normal(&b, x);
        exponential(&e, epsilon);
        times(&b, &b, &e);
        if (above) mpz_sub(best, a.hi, b.lo); else mpz_sub(best, a.lo, b.hi);
        between_clear(&a);
        between_clear(&b);
        between_clear(&e);
        mpq_clears(x, y, NULL);
    }
    set_ratio(out, best, WORK);
    mpz_clears(best, found, NULL);
}

/* ---- The verdict ---- */

static Part part_of(Node *node, const char *relation) {
    Part p = {.law = 0};
    only(node, "noise", "sensitivity", "honest", "rounds", "sampling", "correlated", "claim", NULL);
    if (!field(node, "noise", '{')) stop(UNSUPPORTED, "a part that is a stated claim");
    if (field(node, "correlated", '{')) stop(UNSUPPORTED, "correlated noise");
    Node *noise = needed(node, "noise", '{'), *move = needed(node, "sensitivity", '{');
    const char *law = needed(noise, "law", '"')->text, *key = NULL;
    if (!strcmp(law, "discrete-laplace")) { p.law = 'L'; key = "scale"; }
    if (!strcmp(law, "discrete-gaussian")) { p.law = 'D'; key = "sigma_squared"; }
    if (!strcmp(law, "gaussian")) { p.law = 'G'; key = "sigma"; }
    if (!key) stop(UNSUPPORTED, "noise of the law %s", law);
    only(noise, "law", key, NULL);
    rational(p.parameter, needed(noise, key, '"'));
    if (strcmp(needed(move, "norm", '"')->text, "absolute")) stop(UNSUPPORTED, "a sensitivity that is a norm");
    only(move, "norm", "amount", NULL);
    Node *amount = field(move, "amount", '0') ? field(move, "amount", '0') : needed(move, "amount", '"');
    rational(p.shift, amount);
    if (!mpq_sgn(p.parameter) || !mpq_sgn(p.shift)) stop(NO_CERTIFICATE, "a parameter is 0");
    if (p.law != 'G' && mpz_cmp_ui(mpq_denref(p.shift), 1))
        stop(NO_CERTIFICATE, "a sensitivity of integers is not an integer");
    mpq_t honest;
    rational(honest, needed(node, "honest", '"'));
    if (!mpq_sgn(honest) || mpq_cmp_ui(honest, 1, 1) > 0) stop(NO_CERTIFICATE, "honest is not in (0, 1]");
    p.rounds = whole(needed(node, "rounds", '0'), 1, 10000000);
    mpq_init(p.rate);
    mpq_set_ui(p.rate, 1, 1);
    Node *sample = field(node, "sampling", '{');
    if (sample) {
        if (strcmp(needed(sample, "kind", '"')->text, "poisson") || p.law != 'G')
            stop(UNSUPPORTED, "samples other than Poisson samples with Gaussian noise");
        only(sample, "kind", "rate", NULL);
        if (strcmp(relation, "add-remove"))
            stop(NO_CERTIFICATE, "Poisson samples need the relation add-remove");
        p.sampled = 1;
        rational(p.rate, needed(sample, "rate", '"'));
        if (!mpq_sgn(p.rate) || mpq_cmp_ui(p.rate, 1, 1) >= 0) stop(NO_CERTIFICATE, "a rate is not in (0, 1)");
    }
    return p;
}

/* A rational that the rounds determine: the largest loss (0), rho (1), or a Renyi divergence (2). */
static void exact(mpq_t out, Part *parts, size_t count, int what, const mpq_t order) {
    mpq_t x, y;
    mpq_inits(x, y, NULL);
    for (size_t i = 0; i < count; i++) {
        Part *p = &parts[i];
        if (p->sampled) stop(UNSUPPORTED, "a pure, zCDP or Renyi claim about samples");
        if (what == 0 ? p->law != 'L' : p->law == 'L') {
            if (what == 0) stop(REFUSED, "the largest loss is infinite");
            stop(UNSUPPORTED, "a zCDP or Renyi claim about discrete Laplace noise");
        }
        mpq_set(x, p->shift);
        if (what) {
            mpq_mul(x, x, x);
            mpq_div_2exp(x, x, 1);
        }
        mpq_div(x, x, p->parameter);
        if (p->law == 'G') mpq_div(x, x, p->parameter);
        if (what == 2) {
            mpq_mul(y, order, p->shift);
            if (p->law == 'D' && mpz_cmp_ui(mpq_denref(y), 1))
                stop(UNSUPPORTED, "an order whose product with the sensitivity is not an integer");
            mpq_mul(x, x, order);
        }
        mpz_mul_ui(mpq_numref(x), mpq_numref(x), (unsigned long)p->rounds);
        mpq_canonicalize(x);
        mpq_add(out, out, x);
    }
    mpq_clears(x, y, NULL);
}

static int holds(Node *claim, const Curve *c, Part *parts, size_t count) {
    const char *quantity = needed(claim, "quantity", '"')->text;
    mpq_t at_, lower, upper, found;
    mpq_inits(at_, found, NULL);
    if (!strcmp(quantity, "pure") || !strcmp(quantity, "zcdp")) {
        int rho = quantity[0] == 'z';
        only(claim, "quantity", rho ? "rho" : "epsilon", "theorem", NULL);
        rational(at_, needed(claim, rho ? "rho" : "epsilon", '"'));
        exact(found, parts, count, rho, at_);
        return mpq_equal(found, at_);
    }
    int epsilon = !strcmp(quantity, "epsilon"), renyi = !strcmp(quantity, "renyi");
    if (!epsilon && !renyi && strcmp(quantity, "delta")) stop(NO_CERTIFICATE, "a claim of an unknown quantity");
    const char *key = renyi ? "order" : epsilon ? "delta" : "epsilon";
    only(claim, "quantity", key, "lower", "upper", "digits", "theorem", NULL);
    long digits = whole(needed(claim, "digits", '0'), 0, 300);
    rational(at_, needed(claim, key, '"'));
    int side = mpq_cmp_ui(at_, 1, 1);
    if ((renyi && side <= 0) || (epsilon && side >= 0)) stop(NO_CERTIFICATE, "%s is out of range", key);
    decimal(lower, needed(claim, "lower", '"'), digits);
    decimal(upper, needed(claim, "upper", '"'), digits);
    if (mpq_cmp(lower, upper) > 0) return 0;
    if (renyi || (epsilon && !mpq_sgn(at_))) {
        exact(found, parts, count, renyi ? 2 : 0, at_);
        return mpq_cmp(lower, found) <= 0 && mpq_cmp(found, upper) <= 0;
    }
    delta(found, c, epsilon ? upper : at_, 1);
    if (mpq_cmp(found, epsilon ? at_ : upper) > 0) return 0;
    if (!mpq_sgn(lower)) return 1;
    delta(found, c, epsilon ? lower : at_, 0);
    return epsilon ? mpq_cmp(found, at_) > 0 : mpq_cmp(found, lower) >= 0;
}

int main(int argc, char **argv) {
    static char text[TEXT + 1];
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file) stop(NO_CERTIFICATE, "usage: kernel certificate.json");
    size_t read = fread(text, 1, TEXT, file), length;
    text[read] = 0;
    if (read == TEXT || strlen(text) < read)
        stop(NO_CERTIFICATE, "the file is too long or contains a zero byte");
    at = text;
    Node *all = value(0);
    spaces();
    if (*at || all->kind != '{') stop(NO_CERTIFICATE, "the file is not one JSON object");
    only(all, "schema", "scope", "parts", "assumptions", "claims", "evidence", "software", "digest", NULL);
    if (strcmp(needed(all, "schema", '"')->text, "dpcore-certificate/1"))
        stop(NO_CERTIFICATE, "the schema is not dpcore-certificate/1");
    char *plain, hex[65], *told = needed(all, "digest", '"')->text;
    FILE *memory = open_memstream(&plain, &length);
    canonical(all, memory, 1);
    fclose(memory);
    sha256((unsigned char *)plain, length, hex);
    if (strncmp(told, "sha256:", 7) || strcmp(told + 7, hex))
        stop(REFUSED, "the digest does not match the text");
    Node *evidence = field(all, "evidence", '{');
    if (!evidence) stop(UNSUPPORTED, "a certificate without evidence");
    only(evidence, "step", "digits", "slots", "cut", NULL);
    mpq_t step;
    rational(step, needed(evidence, "step", '"'));
    if (mpq_cmp_ui(step, 1, 1000000000) < 0 || mpq_cmp_ui(step, 1, 1) > 0)
        stop(NO_CERTIFICATE, "the step is not in [1/10^9, 1]");
    whole(needed(evidence, "digits", '0'), 8, 400);
    whole(needed(evidence, "slots", '0'), 64, 1 << 17);
    needed(evidence, "cut", '0');
    Node *scope = needed(all, "scope", '{');
    only(scope, "unit", "relation", NULL);
    word(needed(scope, "unit", '"'), "contribution", "user");
    const char *relation = word(needed(scope, "relation", '"'), "add-remove", "replace");
    needed(all, "assumptions", '[');
    size_t count = 0, done = 0;
    for (Node *n = needed(all, "parts", '[')->child; n; n = n->next) count++;
    if (!count) stop(NO_CERTIFICATE, "no parts");
    Part *parts = room(count, sizeof *parts);
    for (Node *n = needed(all, "parts", '[')->child; n; n = n->next) parts[done++] = part_of(n, relation);
    Node *claims = needed(all, "claims", '[')->child;
    if (!claims) stop(NO_CERTIFICATE, "no claims");
    /* 2^-44 times the smallest stated delta, or 2^-44 if none is stated. */
    mpq_t least, d;
    mpq_init(least);
    mpq_set_ui(least, 1, 1);
    int curves = 0;
    for (Node *n = claims; n; n = n->next) {
        Node *at_delta = field(n, "delta", '"');
        curves += at_delta || !strcmp(needed(n, "quantity", '"')->text, "delta");
        if (at_delta) { rational(d, at_delta); if (mpq_sgn(d) && mpq_cmp(d, least) < 0) mpq_set(least, d); }
    }
    mpz_init(cut_unit);
    mpz_mul_2exp(cut_unit, mpq_numref(least), MASS - 44);
    mpz_fdiv_q(cut_unit, cut_unit, mpq_denref(least));
    prepare();
    Curve curve = {.scenarios = 1};
    if (curves) curve = curve_of(parts, count, step);
    int number = 0;
    for (Node *n = claims; n; n = n->next, number++)
        if (!holds(n, &curve, parts, count)) stop(REFUSED, "claims[%d] is not proven", number);
    stop(PROVEN, "every claim");
}
