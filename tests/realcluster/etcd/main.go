// Command etcd is the server as its authors release it: the released command
// is a main package of a module that cannot be required, this one calls the
// same entry point.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
