// Command bench measures the product against other programs on the same machine, in the same run.
//
// A measurement (contest) has two or more contenders: a way of the product, a peer, or the bare operation underneath.
// Each is a process of its own, with a database of its own, and prints one line of JSON. The rounds go round and round
// the contenders, so that what else the machine does hits all of them; a figure is the median of the rounds, a ratio
// the median of the ratios within each round.
//
// The contenders of the product and the bare ones are in this program (bench run NAME); each peer is a program of its
// own in a folder beside, with its own dependencies. None of them is a dependency of the product. What a contest
// measures is written where it is declared; docs/benchmarks.md holds figures.
package main
