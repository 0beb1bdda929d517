// vcsim, govmomi's simulator of vCenter, behind a main of ours.
module millpond.dev/realcluster/vcsim

go 1.26.0

require github.com/vmware/govmomi v0.53.0

require github.com/google/uuid v1.6.0 // indirect
