// Package e2e holds the tests of the whole program: the real binary, real git repositories, both databases, and, where they
// are installed, the real agent CLIs. What lies outside (Telegram, the models' providers) is a fake on loopback that behaves
// as the real one does. The package owns no code of the product; e2etest has what the tests share.
package e2e
