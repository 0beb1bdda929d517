// Command vcsim is govmomi's simulator of vCenter with what it lacks for a GPU
// inventory: a host with GPUs, scheduled tasks, and a second listener through
// which a test changes hosts and machines.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of the SOAP API")
	control := flag.String("control", "", "address of the control API")
	hosts := flag.Int("hosts", 4, "hosts of the cluster")
	machines := flag.Int("vms", 4, "virtual machines of the cluster")
	user := flag.String("user", "user", "account that may log in")
	password := flag.String("password", "pass", "its password")
	certificate := flag.String("cert", "", "PEM file of the certificate")
	key := flag.String("key", "", "PEM file of its key")
	flag.Parse()

	model := simulator.VPX()
	model.Host = 0
	model.ClusterHost = *hosts
	model.Machine = *machines
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	defer model.Remove()
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	model.Service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	model.Service.Listen = &url.URL{Host: *listen, User: url.UserPassword(*user, *password)}

	world := &world{ctx: model.Service.Context}
	world.addGPUs()
	world.addScheduledTasks()
	go func() { log.Fatal(http.ListenAndServe(*control, world)) }()
	server := model.Service.NewServer()
	defer server.Close()
	fmt.Println("ready", server.URL.Host)
	select {}
}

// world changes the simulator's objects.
type world struct {
	ctx   *simulator.Context
	tasks *taskManager
}

// ServeHTTP changes one object: /CHANGE?id=ID&value=VALUE.
func (w *world) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	id, value := query.Get("id"), query.Get("value")
	change := map[string]func(string, string) error{
		"/maintenance": w.maintenance,
		"/quarantine":  w.quarantine,
		"/stats":       w.stats,
		"/schedule":    w.schedule,
	}[request.URL.Path]
	if change == nil {
		http.NotFound(answer, request)
		return
	}
	if err := change(id, value); err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
	}
}

func (w *world) host(id string) (*simulator.HostSystem, error) {
	host, ok := w.ctx.Map.Get(types.ManagedObjectReference{Type: "HostSystem", Value: id}).(*simulator.HostSystem)
	if !ok {
		return nil, fmt.Errorf("no host %q", id)
	}
	return host, nil
}

// maintenance sets the mode as the simulator itself does: without telling
// anybody who waits for updates.
func (w *world) maintenance(id, value string) error {
	host, err := w.host(id)
	if err == nil {
		w.ctx.WithLock(host, func() { host.Runtime.InMaintenanceMode = value == "true" })
	}
	return err
}

// quarantine sets the mode and tells those who wait for updates.
func (w *world) quarantine(id, value string) error {
	host, err := w.host(id)
	if err == nil {
		w.ctx.Update(host, []types.PropertyChange{
			{Name: "runtime.inQuarantineMode", Val: value == "true"},
		})
	}
	return err
}

// stats sets the CPU demand of a machine.
func (w *world) stats(id, value string) error {
	vm, ok := w.ctx.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: id}).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("no machine %q", id)
	}
	demand, err := strconv.Atoi(value)
	if err == nil {
		w.ctx.WithLock(vm, func() { vm.Summary.QuickStats.OverallCpuDemand = int32(demand) })
	}
	return err
}

// schedule adds a task on a host that begins at the given time.
func (w *world) schedule(id, value string) error {
	host, err := w.host(id)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return err
	}
	task := &mo.ScheduledTask{}
	task.Self = types.ManagedObjectReference{Type: "ScheduledTask", Value: "schedule-" + id}
	task.Info = types.ScheduledTaskInfo{
		ScheduledTaskSpec: types.ScheduledTaskSpec{
			Name:      "maintenance of " + host.Name,
			Enabled:   true,
			Scheduler: &types.OnceTaskScheduler{RunAt: &at},
			Action:    &types.MethodAction{Name: "EnterMaintenanceMode_Task"},
		},
		ScheduledTask: task.Self,
		Entity:        host.Self,
		NextRunTime:   &at,
		State:         types.TaskInfoStateQueued,
	}
	w.ctx.Map.Put(task)
	w.ctx.WithLock(w.tasks, func() { w.tasks.found = append(w.tasks.found, task.Self) })
	return nil
}

// addGPUs gives the first host a Tesla T4 and an Intel Flex 170, whose vendor
// id is negative on the wire.
func (w *world) addGPUs() {
	host := w.ctx.Map.Any("HostSystem").(*simulator.HostSystem)
	gpu := func(id string, vendor, device int16, name string) types.HostPciDevice {
		return types.HostPciDevice{Id: id, ClassId: 0x0302, VendorId: vendor, DeviceId: device, DeviceName: name}
	}
	flex := uint16(0x8086)
	hardware := *host.Hardware
	hardware.PciDevice = append(append([]types.HostPciDevice{}, hardware.PciDevice...),
		gpu("0000:3b:00.0", 0x10de, 0x1eb8, "TU104GL [Tesla T4]"),
		gpu("0000:af:00.0", int16(flex), 0x56c0, "Data Center GPU Flex 170"))
	host.Hardware = &hardware
	config := *host.Config
	config.GraphicsInfo = []types.HostGraphicsInfo{{
		DeviceName: "NVIDIA Tesla T4", VendorName: "NVIDIA", PciId: "0000:3b:00.0",
		GraphicsType: "direct", MemorySizeInKB: 16 << 20,
	}}
	config.PciPassthruInfo = []types.BaseHostPciPassthruInfo{&types.HostPciPassthruInfo{
		Id: "0000:af:00.0", DependentDevice: "0000:af:00.0",
		PassthruCapable: true, PassthruEnabled: true, PassthruActive: true,
	}}
	host.Config = &config
}

func (w *world) addScheduledTasks() {
	w.tasks = &taskManager{}
	w.tasks.Self = *w.ctx.Map.Get(types.ManagedObjectReference{
		Type: "ServiceInstance", Value: "ServiceInstance",
	}).(*simulator.ServiceInstance).Content.ScheduledTaskManager
	w.ctx.Map.Put(w.tasks)
}

// taskManager lists scheduled tasks, which the simulator cannot.
type taskManager struct {
	mo.ScheduledTaskManager
	found []types.ManagedObjectReference
}

// RetrieveEntityScheduledTask is the method of the API.
func (m *taskManager) RetrieveEntityScheduledTask(*simulator.Context, *types.RetrieveEntityScheduledTask) soap.HasFault {
	return &methods.RetrieveEntityScheduledTaskBody{
		Res: &types.RetrieveEntityScheduledTaskResponse{Returnval: m.found},
	}
}
