// Package packaging holds what pulse is shipped in: the container image's health check, the systemd unit, and the tests
// of them, of the Dockerfile and of the compose file. It has no code of the product.
package packaging
