#include "textflag.h"

// func bear(steps *step, flags uintptr) (pid, errno uintptr)
//
// The child shares the memory and the stack of this thread, which waits for it in the kernel. So it must not touch the
// stack: it goes from step to step in registers, writes only into the steps, and never returns.
TEXT ·bear(SB), NOSPLIT, $0-32
	MOVQ steps+0(FP), R12
	MOVQ flags+8(FP), DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX // clone
	SYSCALL
	TESTQ AX, AX
	JZ child
	JLT failed
	MOVQ AX, pid+16(FP)
	MOVQ $0, errno+24(FP)
	RET
failed:
	NEGQ AX
	MOVQ $0, pid+16(FP)
	MOVQ AX, errno+24(FP)
	RET
child:
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	SYSCALL
	MOVQ AX, 64(R12)
	MOVQ 80(R12), BX
	MOVQ AX, (BX)
	CMPQ AX, 48(R12)
	JLT broken
	CMPQ AX, 56(R12)
	JGT broken
	ADDQ $88, R12
	JMP child
broken:
	MOVQ $1, 72(R12)
exit:
	MOVL $127, DI
	MOVL $231, AX // exit_group
	SYSCALL
	JMP exit
