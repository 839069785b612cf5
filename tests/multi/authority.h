/* Authorities and certificates that tests make up, in files of a folder of their own. */
#ifndef WEIR_TESTS_AUTHORITY_H
#define WEIR_TESTS_AUTHORITY_H

#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define AUTHORITY_PATH 128
#define AUTHORITY_DAY 86400L

typedef struct authority {
  EVP_PKEY *key;
  X509 *certificate;
} authority;

/* What one who has a certificate keeps in files. */
typedef struct certified {
  char certificate[AUTHORITY_PATH], key[AUTHORITY_PATH];
} certified;

static inline void authority_extend(X509 *to, X509 *by, int what, const char *value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, by, to, NULL, NULL, 0);
  X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, what, value);
  cr_assert(extension != NULL && X509_add_ext(to, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

/* In force from `from` to `until` seconds from now. */
static inline X509 *authority_draft(EVP_PKEY *key, const char *name, long serial, long from,
                                    long until) {
  X509 *x = X509_new();
  cr_assert_not_null(x);
  (void)X509_set_version(x, 2);
  (void)ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
  (void)X509_gmtime_adj(X509_getm_notBefore(x), from);
  (void)X509_gmtime_adj(X509_getm_notAfter(x), until);
  (void)X509_set_pubkey(x, key);
  cr_assert_eq(X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                                          (const unsigned char *)name, -1, -1, 0),
               1);
  return x;
}

/* Whose certificate comes from another one, or, where that is NULL, from itself. */
static inline authority authority_below(const authority *other, const char *name) {
  authority a = {.key = EVP_EC_gen("P-256")};
  a.certificate = authority_draft(a.key, name, 1, -AUTHORITY_DAY, 10 * AUTHORITY_DAY);
  X509 *by = other != NULL ? other->certificate : a.certificate;
  (void)X509_set_issuer_name(a.certificate, X509_get_subject_name(by));
  authority_extend(a.certificate, by, NID_basic_constraints, "critical,CA:TRUE");
  authority_extend(a.certificate, by, NID_key_usage, "critical,keyCertSign,cRLSign");
  cr_assert_gt(X509_sign(a.certificate, other != NULL ? other->key : a.key, EVP_sha256()), 0);
  return a;
}

static inline authority authority_new(const char *name) { return authority_below(NULL, name); }

static inline void authority_free(authority *a) {
  EVP_PKEY_free(a->key);
  X509_free(a->certificate);
}

static inline void authority_folder(char folder[32]) {
  (void)snprintf(folder, 32, "/tmp/weir-tls-XXXXXX");
  cr_assert_not_null(mkdtemp(folder));
}

/* Its certificate, appended to a file. */
static inline void authority_write(const authority *a, const char *path) {
  FILE *file = fopen(path, "a");
  cr_assert(file != NULL && PEM_write_X509(file, a->certificate) == 1);
  (void)fclose(file);
}

typedef struct certify_as {
  long from, until, serial; /* until 0: a day */
  const char *usage;        /* NULL: any */
  const char *passphrase;   /* of the key; NULL: none */
} certify_as;

/* In files FOLDER/NAME.crt and .key, which are replaced as a whole. */
static inline certified authority_certify(const authority *a, const char *folder, const char *name,
                                          certify_as as) {
  certified c;
  char part[AUTHORITY_PATH + 8];
  EVP_PKEY *key = EVP_EC_gen("P-256");
  X509 *x = authority_draft(key, name, as.serial, as.from != 0 ? as.from : -60,
                            as.until != 0 ? as.until : AUTHORITY_DAY);
  (void)X509_set_issuer_name(x, X509_get_subject_name(a->certificate));
  if (as.usage != NULL) authority_extend(x, a->certificate, NID_ext_key_usage, as.usage);
  cr_assert_gt(X509_sign(x, a->key, EVP_sha256()), 0);
  (void)snprintf(c.certificate, sizeof c.certificate, "%s/%s.crt", folder, name);
  (void)snprintf(c.key, sizeof c.key, "%s/%s.key", folder, name);
  (void)snprintf(part, sizeof part, "%s.part", c.certificate);
  FILE *file = fopen(part, "w");
  cr_assert(file != NULL && PEM_write_X509(file, x) == 1 && fclose(file) == 0);
  cr_assert_eq(rename(part, c.certificate), 0);
  (void)umask(077);
  (void)snprintf(part, sizeof part, "%s.part", c.key);
  file = fopen(part, "w");
  cr_assert(file != NULL &&
            PEM_write_PrivateKey(file, key, as.passphrase ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL,
                                 (void *)(uintptr_t)as.passphrase) == 1 &&
            fclose(file) == 0);
  cr_assert_eq(rename(part, c.key), 0);
  X509_free(x);
  EVP_PKEY_free(key);
  return c;
}

#endif
