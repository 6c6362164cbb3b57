// goroutines SEED
//
// A Go program with some 40 MiB in its own heap, and goroutines that sleep. Prints what the runtime says of its memory,
// and how many bytes of blocks it has written to; it rests when its main goroutine, locked to the first thread, reads
// standard input.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

var kept [][]byte

func deep(depth int, wait *sync.WaitGroup, forever chan int) int {
	if depth > 0 {
		return deep(depth-1, wait, forever) + 1
	}
	wait.Done()
	return <-forever
}

func main() {
	runtime.LockOSThread()
	seed, _ := strconv.ParseInt(os.Args[1], 10, 64)
	random := rand.New(rand.NewSource(seed))
	total := 0
	for total < 40<<20 {
		block := make([]byte, 1000+random.Intn(100000))
		for i := range block {
			block[i] = 1
		}
		kept = append(kept, block)
		total += len(block)
	}
	var wait sync.WaitGroup
	forever := make(chan int)
	for i := 0; i < 50; i++ {
		wait.Add(1)
		go deep(random.Intn(40), &wait, forever)
	}
	wait.Wait()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Fprintf(os.Stderr, "sys %d stacks %d written %d\n", stats.Sys, stats.StackSys, total)
	line := make([]byte, 1)
	syscall.Read(0, line)
	runtime.KeepAlive(kept)
}
