#include "textflag.h"

// func bear(steps *step, flags uintptr) (pid, errno uintptr)
//
// The child shares the memory and the stack of this thread, which waits for it in the kernel. So it must not touch the
// stack: it goes from step to step in registers, writes only into the steps, and never returns.
TEXT ·bear(SB), NOSPLIT, $0-32
	MOVD steps+0(FP), R9
	MOVD flags+8(FP), R0
	MOVD ZR, R1
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8 // clone
	SVC
	CMP $0, R0
	BEQ child
	BLT failed
	MOVD R0, pid+16(FP)
	MOVD ZR, errno+24(FP)
	RET
failed:
	NEG R0, R0
	MOVD ZR, pid+16(FP)
	MOVD R0, errno+24(FP)
	RET
child:
	MOVD 0(R9), R8
	MOVD 8(R9), R0
	MOVD 16(R9), R1
	MOVD 24(R9), R2
	MOVD 32(R9), R3
	MOVD 40(R9), R4
	SVC
	MOVD R0, 64(R9)
	MOVD 80(R9), R10
	MOVD R0, (R10)
	MOVD 48(R9), R10
	CMP R10, R0
	BLT broken
	MOVD 56(R9), R10
	CMP R10, R0
	BGT broken
	ADD $88, R9
	B child
broken:
	MOVD $1, R10
	MOVD R10, 72(R9)
exit:
	MOVD $127, R0
	MOVD $94, R8 // exit_group
	SVC
	B exit
