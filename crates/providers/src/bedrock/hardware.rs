//! Whether this is a virtual machine of the cloud, which has a service of metadata.

use std::path::Path;

/// Leaves the service out where it is `true`.
pub(super) const DISABLED: &str = "AWS_EC2_METADATA_DISABLED";
/// Another address of the service.
pub(super) const ENDPOINT: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

/// Whether this machine has such a service, as variables and its hardware say. Asks nobody.
pub(super) fn has_metadata(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let is_disabled = variable(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    !is_disabled && (variable(ENDPOINT).is_some() || is_virtual_machine(Path::new("/sys")))
}

/// Whether the hardware that the kernel describes at `sys` is a machine of the cloud.
fn is_virtual_machine(sys: &Path) -> bool {
    let says = |file: &str| std::fs::read_to_string(sys.join(file)).unwrap_or_default().to_ascii_lowercase();
    says("class/dmi/id/sys_vendor").trim() == "amazon ec2" || says("hypervisor/uuid").starts_with("ec2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_of_the_cloud_is_known_by_its_hardware() {
        let sys = tempfile::tempdir().unwrap();
        assert!(!is_virtual_machine(sys.path()));
        std::fs::create_dir_all(sys.path().join("class/dmi/id")).unwrap();
        let vendor = sys.path().join("class/dmi/id/sys_vendor");
        std::fs::write(&vendor, "QEMU\n").unwrap();
        assert!(!is_virtual_machine(sys.path()));
        std::fs::write(&vendor, "Amazon EC2\n").unwrap();
        assert!(is_virtual_machine(sys.path()));
        std::fs::remove_file(&vendor).unwrap();
        std::fs::create_dir(sys.path().join("hypervisor")).unwrap();
        std::fs::write(sys.path().join("hypervisor/uuid"), "ec2e1916-9099\n").unwrap();
        assert!(is_virtual_machine(sys.path()));
        let named = |name: &str| (name == ENDPOINT).then(|| "http://127.0.0.1:1".to_owned());
        assert!(has_metadata(&named));
        assert!(!has_metadata(&|name| named(name).or_else(|| (name == DISABLED).then(|| "True".to_owned()))));
    }
}
