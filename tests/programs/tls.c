/* Contexts and connections of OpenSSL: prints the address of each, then pauses.

   tls SEED: a random number of SSL_CTX and of SSL, some of which are freed again. */
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 200

int main(int count, char **arguments) {
  static SSL_CTX *contexts[MOST];
  static SSL *connections[MOST];
  unsigned seed = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 0) : 1;
  srand(seed);
  const SSL_METHOD *methods[] = {TLS_method(), TLS_client_method(), TLS_server_method(), DTLS_method()};
  int made = 1 + rand() % 40, connected = rand() % MOST;
  for (int i = 0; i < made; i++) contexts[i] = SSL_CTX_new(methods[rand() % 4]);
  for (int i = 0; i < connected; i++) {
    connections[i] = SSL_new(contexts[rand() % made]);
    if (rand() % 2) SSL_set_connect_state(connections[i]);
    if (rand() % 2) SSL_set_bio(connections[i], BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (SSL_in_connect_init(connections[i]) && rand() % 2) SSL_do_handshake(connections[i]);
  }
  for (int i = 0; i < connected; i++)
    if (rand() % 4 == 0) SSL_free(connections[i]), connections[i] = NULL;
  for (int i = 0; i < connected; i++)
    if (connections[i] != NULL) fprintf(stderr, "SSL %p\n", (void *)connections[i]);
  for (int i = 0; i < made; i++) fprintf(stderr, "SSL_CTX %p\n", (void *)contexts[i]);
  fflush(stderr);
  pause();
}
